"""The deploy notes hold: the files parse, what they name is there, the service answers, the sums add up."""

import configparser
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped,unused-ignore]

from jobevents.deliveries import GRACE_S as PUSH_GRACE_S
from jobevents.deliveries import RECORD_S, STOP_GRACE_S
from jobevents.runner import GRACE_S as RUN_GRACE_S
from jobevents.wiring_dispatch import open_dispatch
from tests.cli import COMMAND
from tests.tokens import Issuer

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / ".deploy"
NOTES = (DEPLOY / "README.md").read_text("utf-8")
UNITS = sorted(DEPLOY.glob("*.service"))
MANIFESTS = sorted(DEPLOY.glob("*.yaml"))


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading of the notes."""
    part = NOTES.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_notes_name_every_file_and_no_other() -> None:
    """A file that is added is explained."""
    table = NOTES.split("## On Google Cloud", 1)[0]

    named = set(re.findall(r"`([\w.-]+\.(?:py|yaml|sh|service)|Dockerfile)`", table))

    assert {path.name for path in DEPLOY.iterdir() if path.is_file()} - {"README.md"} == named


def test_the_notes_name_every_variable() -> None:
    """Those that the code reads, and those of the service; no others."""
    sources = [*ROOT.glob("jobevents/**/*.py"), *ROOT.glob("projections/**/*.py"), DEPLOY / "service.py"]
    read = {name for path in sources for name in re.findall(r"\bJOBEVENTS_[A-Z_]+\b", path.read_text("utf-8"))}

    named = {row[0].strip("`") for row in rows("Environment variables")}

    assert read == named


def test_the_costs_add_up() -> None:
    """What a reader adds up is what is said."""
    costs = [float(row[1]) for row in rows("What a million transitions cost")]

    assert costs[-1] == pytest.approx(sum(costs[:-1]))


def test_setting_up_gives_the_roles_of_the_notes() -> None:
    """And no other."""
    script = (DEPLOY / "setup.sh").read_text("utf-8")

    given = set(re.findall(r"--role=(roles/[\w.]+)", script))

    assert {row[1].strip("`") for row in rows("Least roles")} == given
    assert {row[0].strip("`") for row in rows("Least roles")} == {"jobs-run", "jobs-project", "jobs-push"}
    assert "--soft-delete-duration=0" in script


def test_the_script_is_bash() -> None:
    """It parses, and stops at what fails."""
    done = subprocess.run(["bash", "-n", DEPLOY / "setup.sh"], capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
    assert os.access(DEPLOY / "setup.sh", os.X_OK)
    assert "set -euo pipefail" in (DEPLOY / "setup.sh").read_text("utf-8")


def test_the_script_is_safe_to_repeat(tmp_path: Path) -> None:
    """Where everything is there it makes nothing, and where nothing is it makes each thing once."""
    log = tmp_path / "calls"
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(f'#!/bin/bash\necho "$*" >> {shlex.quote(str(log))}\n[[ "$*" != *describe* || -n "$THERE" ]]\n')
    gcloud.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PROJECT": "p", "LOCATION": "l"}

    def made(there: str) -> list[str]:
        log.unlink(missing_ok=True)
        subprocess.run([DEPLOY / "setup.sh"], env={**env, "THERE": there}, check=True, capture_output=True)
        return [line for line in log.read_text().splitlines() if re.search(r"\bcreate\b", line)]

    assert [] == made("yes")
    assert 7 == len(made(""))  # three accounts, bucket, topic, subscription, queue


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_whole(path: Path) -> None:
    """Its variables are known, its image and its account are named."""
    found = yaml.safe_load(path.read_text("utf-8"))
    spec = found["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    assert found["metadata"]["name"] in ("jobs-push", "jobs-project")
    assert spec["serviceAccountName"].endswith("@PROJECT.iam.gserviceaccount.com")
    assert {one["name"] for one in container["env"]} <= {row[0].strip("`") for row in rows("Environment variables")}
    assert container["resources"]["limits"]["memory"]


def test_the_push_service_waits_longer_than_its_jobs() -> None:
    """A job's timeout < the dispatch's deadline < the service's; and CPU is there for the lease."""
    found = yaml.safe_load((DEPLOY / "push.yaml").read_text("utf-8"))
    template = found["spec"]["template"]
    (container,) = template["spec"]["containers"]
    env = {one["name"]: one["value"] for one in container["env"]}
    source = (DEPLOY / "service.py").read_text("utf-8")
    deadline_s = float(re.findall(r"deadline_s=(\d+)", env["JOBEVENTS_DISPATCH"])[0])
    (timeout_s,) = (float(text) for text in re.findall(r"timeout=(\d+)", source))

    open_dispatch(env["JOBEVENTS_DISPATCH"])
    assert timeout_s < deadline_s < template["spec"]["timeoutSeconds"]
    assert f"most={template['spec']['containerConcurrency']}" in source
    assert "false" == template["metadata"]["annotations"]["run.googleapis.com/cpu-throttling"]
    assert "/healthz" == container["startupProbe"]["httpGet"]["path"]
    assert PUSH_GRACE_S + STOP_GRACE_S + RECORD_S < 10, "Cloud Run leaves ten seconds"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_one(path: Path) -> None:
    """Its sections and keys are systemd's, its command is ours, and it leaves time to stop."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys have capitals
    unit.read_string(path.read_text("utf-8"))
    command = shlex.split(unit["Service"]["ExecStart"])

    shown = subprocess.run([*COMMAND, command[1], "--help"], capture_output=True, text=True, check=True)

    assert ["Unit", "Service", "Install"] == unit.sections()
    assert all(option in shown.stdout for option in command if option.startswith("--"))
    assert RUN_GRACE_S + 2 < float(unit["Service"]["TimeoutStopSec"])
    assert "yes" == unit["Service"]["DynamicUser"]
    assert unit["Service"]["Environment"].startswith("JOBEVENTS_URL=sqlite:////var/lib/")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_a_unit(path: Path, tmp_path: Path) -> None:
    """As its own checker says, where there is one."""
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("no systemd-analyze: the units are parsed, and NOT checked by systemd")
    copy = tmp_path / path.name
    copy.write_text(path.read_text("utf-8").replace("/opt/jobs/venv/bin/jobevents", "/bin/true"))

    done = subprocess.run([checker, "verify", copy], capture_output=True, text=True, check=False)

    ours = [line for line in (done.stdout + done.stderr).splitlines() if path.name in line]
    assert [] == ours


def test_the_image_is_built_as_it_should_be() -> None:
    """Pinned to a Python that we test, not as root, what it copies is there, and its command is one that exists."""
    lines = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text("utf-8")).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    of = {name: [rest for kind, rest in steps if kind == name] for name, _ in steps}
    copied = [source for rest in of["COPY"] if "--from" not in rest for source in rest.split()[:-1]]
    (extras,) = re.findall(r"\.\[([\w,]+)\]", " ".join(of["RUN"]))
    known = (ROOT / "pyproject.toml").read_text("utf-8")

    assert set(of) <= {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "CMD"}
    assert all(re.match(r"python:3\.1[1-4]-slim-bookworm( AS build)?$", one) for one in of["FROM"])
    assert [] == [source for source in copied if not (ROOT / source).exists()]
    assert all(re.search(rf"^{name} = \[", known, re.MULTILINE) for name in extras.split(","))
    assert ["10001"] == of["USER"]
    assert "USER" in [kind for kind, _ in steps[-3:]], "nothing is done as root after it"
    command = json.loads(of["CMD"][0])
    assert ["uvicorn", "service:app"] == command[:2]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The service as a module, over a log in memory."""
    monkeypatch.setenv("JOBEVENTS_URL", "memory://")
    monkeypatch.setenv("JOBEVENTS_AUDIENCE", "https://jobs.example")
    monkeypatch.setenv("JOBEVENTS_ACCOUNT", "push@p.iam.gserviceaccount.com")
    monkeypatch.delenv("JOBEVENTS_DISPATCH", raising=False)
    spec = importlib.util.spec_from_file_location("service", DEPLOY / "service.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    module.app.endpoint.close()
    module.jobs.close()
    sys.modules.pop("service", None)


def test_the_service_runs_what_is_delivered(served: Any) -> None:
    """With a token of the account that it was told of."""
    google = Issuer()
    served.app.endpoint._check._fetch_keys = google.fetch
    job_id = served.jobs.submit("render", {"song": 7}, external=True)

    answer = served.app.endpoint.handle({"Authorization": f"Bearer {google.token()}"}, b"", job_id=job_id)

    assert 200 == answer.status
    assert {"rendered": {"song": 7}} == served.jobs.job(job_id).result
