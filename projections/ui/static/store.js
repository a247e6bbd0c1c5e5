// What this browser remembers; a browser that keeps nothing only forgets.
export function recall(key, otherwise) {
  try { return localStorage.getItem("jobevents." + key) ?? otherwise; } catch { return otherwise; }
}
export function remember(key, value) {
  try { localStorage.setItem("jobevents." + key, value); } catch { /* forgotten */ }
}
