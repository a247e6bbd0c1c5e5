// Sets the chosen theme before anything is painted. The one script that is not a module.
try {
  const chosen = localStorage.getItem("jobevents.theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* no storage: as the system says */ }
