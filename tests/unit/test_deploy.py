"""Everything that deploy/ and docs/deploy.md name must exist: queues, commands, settings, ports, files."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from celery.bin.celery import celery as celery_cli
from typer.main import get_command

from tests.support.deployment import QUEUES, environment_variables
from weavegen import config
from weavegen.cli.app import app
from weavegen.sandbox import image_root, seccomp
from weavegen.services import fleet, vllm

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCUMENT = (ROOT / "docs" / "deploy.md").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = {path.name: list(yaml.safe_load_all(path.read_text())) for path in (DEPLOY / "kubernetes").glob("*.yaml")}
OBJECTS = [item for file in KUBERNETES.values() for item in file]
OUR_IMAGE = ("weavegen:", "${WEAVEGEN_IMAGE:-weavegen:")
OURS = [name for name, service in COMPOSE["services"].items() if service["image"].startswith(OUR_IMAGE)]
IMAGE_HOST = "$host"
"""The host's name in deploy/execute-worker.sh."""


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for document in OBJECTS:
        if document["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, pod in pods():
        assert len(pod["containers"]) == 1
        yield name, pod["containers"][0]


def commands() -> dict[str, list[str]]:
    """The commands that run in weavegen's image, by file and part, without what a shell does before them.

    Both kinds of deployment must run the same commands.
    """
    commands_by_part = {f"compose {name}": COMPOSE["services"][name]["command"] for name in OURS}
    for name, container in containers():
        if container["image"].startswith(OUR_IMAGE):
            commands_by_part[f"kubernetes {name}"] = container["args"]
    return {
        name: shlex.split(words[2].partition("exec ")[2]) if words[:2] == ["sh", "-c"] else list(map(str, words))
        for name, words in commands_by_part.items()
    }


def worker_of_script() -> list[str]:
    text = (DEPLOY / "execute-worker.sh").read_text().replace("\\\n", " ")
    line = next(line for line in text.splitlines() if line.startswith("celery "))
    return shlex.split(line.removesuffix("&").replace('"${1:-32}"', "32"))


def queues(command: list[str]) -> list[str]:
    return command[command.index("-Q") + 1].split(",")


def test_compose_and_kubernetes_run_the_same_parts_by_the_same_commands() -> None:
    commands_by_part = commands()
    parts = {name.split()[1] for name in commands_by_part}
    assert parts == {"migrate", "model", "lint", "execute", "beat", "flower", "viewer"}
    for part in parts:
        assert commands_by_part[f"compose {part}"] == commands_by_part[f"kubernetes {part}"]


def test_beat_starts_without_the_schedule_file_that_a_killed_one_left(tmp_path: Path) -> None:
    [container] = [container for name, container in containers() if name == "beat"]
    for words in (COMPOSE["services"]["beat"]["command"], container["args"]):
        (tmp_path / "beat-schedule.db").write_bytes(b"cut off")
        script = words[-1].replace("/tmp/", f"{tmp_path}/").replace("exec celery", "echo celery")
        done = subprocess.run([*words[:-1], script], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("celery -A tasks beat ")
        assert list(tmp_path.iterdir()) == []


def test_no_service_of_kubernetes_sets_variables_in_a_pod() -> None:
    """FLOWER_PORT and VLLM_PORT would be taken for options."""
    assert all(pod["enableServiceLinks"] is False for _, pod in pods())


def test_deployments_serve_exactly_the_queues_of_the_code() -> None:
    workers = [words for words in [*commands().values(), worker_of_script()] if "worker" in words]
    assert {queue for words in workers for queue in queues(words)} == QUEUES | {f"execute.{IMAGE_HOST}"}
    here = config.load({"WEAVEGEN_HOST": IMAGE_HOST})
    by_up = fleet.worker_commands(here, model=256, lint=4, execute=32)
    ours = {"model": commands()["compose model"], "lint": commands()["compose lint"], "execute": worker_of_script()}
    for part, words in by_up.items():
        wanted = words[words.index("celery") :]
        wanted[wanted.index("-n") + 1] = ours[part][ours[part].index("-n") + 1]
        assert ours[part] == wanted


def test_every_command_and_option_exists() -> None:
    weavegen = get_command(app)
    for where, words in commands().items():
        if words[0] == "weavegen":
            command = weavegen.commands[words[1]]  # type: ignore[attr-defined]
            options = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, where
        elif words[0] == "celery":
            [verb] = {"worker", "beat", "flower"} & set(words)
            if verb != "flower":
                options = {option for parameter in celery_cli.commands[verb].params for option in parameter.opts}
                given = {word.split("=")[0] for word in words[words.index(verb) :] if word.startswith("-")}
                assert given <= options, where
        else:
            assert words[0] == "execute-worker"
            assert f"/usr/local/bin/{words[0]}" in (DEPLOY / "Dockerfile").read_text()
    assert commands()["compose flower"] == [
        "celery", *fleet.flower_command(5555, "0.0.0.0")[3:]
    ]  # fmt: skip


def test_every_environment_variable_is_one_that_weavegen_or_flower_reads() -> None:
    ours = environment_variables() | fleet.FLOWER_SETTINGS.keys() | {"FLOWER_BASIC_AUTH"}
    for name in OURS:
        assert COMPOSE["services"][name]["environment"].keys() <= ours
    [shared] = [item["data"] for item in OBJECTS if item["kind"] == "ConfigMap"]
    assert shared.keys() <= ours
    for name, container in containers():
        if container["image"].startswith(OUR_IMAGE):
            assert {item["name"] for item in container.get("env", [])} <= ours, name
    config.load({key: str(value) for key, value in shared.items()})


def test_flower_has_the_settings_of_weavegen_up() -> None:
    [container] = [container for name, container in containers() if name == "flower"]
    given = {variable["name"]: variable.get("value") for variable in container["env"] if "value" in variable}
    assert given == fleet.FLOWER_SETTINGS
    assert fleet.FLOWER_SETTINGS.items() <= COMPOSE["services"]["flower"]["environment"].items()


def test_ports_are_the_defaults_of_the_code() -> None:
    defaults = config.Config
    assert f"127.0.0.1:{defaults.flower_port}:{defaults.flower_port}" in COMPOSE["services"]["flower"]["ports"]
    assert f"127.0.0.1:{defaults.viewer_port}:{defaults.viewer_port}" in COMPOSE["services"]["viewer"]["ports"]
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)
    services = {item["metadata"]["name"]: item["spec"] for item in OBJECTS if item["kind"] == "Service"}
    for name, port in (("flower", defaults.flower_port), ("viewer", defaults.viewer_port)):
        assert [entry["port"] for entry in services[name]["ports"]] == [port]


def test_every_part_has_a_health_check_and_resource_limits() -> None:
    for name, service in COMPOSE["services"].items():
        assert name == "migrate" or "healthcheck" in service, name
        assert "resources" in service["deploy"], name
    for name, container in containers():
        assert name == "migrate" or "livenessProbe" in container, name
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}, name
        assert "memory" in container["resources"]["limits"], name


def test_the_log_of_every_container_is_bounded() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name


def test_health_checks_use_the_workers_name() -> None:
    for name in ("model", "lint", "execute"):
        [container] = [container for part, container in containers() if part == name]
        checks = [COMPOSE["services"][name]["healthcheck"]["test"][1].replace("$$", "$")]
        checks += [container[probe]["exec"]["command"][2] for probe in ("startupProbe", "livenessProbe")]
        for check in checks:
            assert re.search(rf'inspect ping .*-d "{name}@\$(\(hostname\)|HOSTNAME|WEAVEGEN_HOST)"$', check)


def test_secrets_are_references_and_not_literals() -> None:
    written = "".join(path.read_text() for path in DEPLOY.rglob("*.yaml"))
    assert not any(item["kind"] == "Secret" for item in OBJECTS)
    for match in re.finditer(r"^\s*\w*(PASSWORD|TOKEN|API_KEY|AUTH): +(\S.*)$", written, re.M):
        assert match[2].startswith(("$", "flower:$")), match[0]
    referred = set(re.findall(r"secret(?:Key)?Ref: \{name: ([a-z-]+)", written))
    made = set(re.findall(r"create secret generic ([a-z-]+)", DOCUMENT))
    assert referred == made
    keys = set(re.findall(r"secretKeyRef: \{name: [a-z-]+, key: (\w+)", written))
    assert keys <= set(re.findall(r"--from-literal=(\w+)=", DOCUMENT))
    asked = set(re.findall(r"\$\{(\w+):\?", written))
    assert asked == set(re.findall(r"(?m)^    (\w+)=", DOCUMENT.split("deploy/.env")[1].split("\n\n    docker")[0]))


def test_only_the_execute_worker_has_extra_privileges_and_for_documented_reasons() -> None:
    for name in OURS:
        service = COMPOSE["services"][name]
        assert service["cap_drop"] == ["ALL"]
        loose = {"seccomp=seccomp.json", "apparmor=unconfined", "systempaths=unconfined"} & set(service["security_opt"])
        assert len(loose) == (3 if name == "execute" else 0)
    for name, pod in pods():
        security = pod["containers"][0]["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        if name == "execute":
            assert (security["procMount"], pod["hostUsers"]) == ("Unmasked", False)
            assert pod["securityContext"]["seccompProfile"] == {"type": "Unconfined"}
        elif name != "vllm":  # its image runs as root
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert pod["securityContext"]["runAsNonRoot"] is True
    grace = next(pod["terminationGracePeriodSeconds"] for name, pod in pods() if name == "execute")
    assert grace > 4 * config.Config.drain


def test_the_filter_of_the_execute_container_refuses_what_boxes_refuse_too_and_spares_bubblewrap() -> None:
    profile = json.loads((DEPLOY / "seccomp.json").read_text())
    refused = {name for rule in profile["syscalls"] if "args" not in rule for name in rule["names"]}
    assert refused < set(seccomp.REFUSED)
    assert not refused & {"clone", "unshare", "mount", "umount2", "pivot_root", "sethostname"}
    # Without a processor's other architectures, their calls would end the process. The filter of boxes refuses them.
    assert {f"SCMP_ARCH_{name}" for name in ("X86_64", "X86", "X32", "AARCH64", "ARM")} == set(profile["architectures"])
    assert {rule["action"] for rule in profile["syscalls"]} == {"SCMP_ACT_ERRNO"}


def test_autoscaling_uses_queues_that_the_scaled_part_serves() -> None:
    served = {part: queues(commands()[f"compose {part}"]) for part in ("model", "lint")}
    served["execute"] = queues(worker_of_script())
    kinds = {
        item["metadata"]["name"]: item["kind"] for item in OBJECTS if item["kind"] in ("Deployment", "StatefulSet")
    }
    scaled = [item for item in OBJECTS if item["kind"] == "ScaledObject"]
    assert {item["metadata"]["name"] for item in scaled} == served.keys()
    for scaler in scaled:
        target = scaler["spec"]["scaleTargetRef"]
        assert kinds[target["name"]] == target["kind"]
        for trigger in scaler["spec"]["triggers"]:
            assert trigger["metadata"]["listName"] in served[target["name"]]
    fallback = [item for item in OBJECTS if item["kind"] == "HorizontalPodAutoscaler"]
    limits = {item["metadata"]["name"]: (item["spec"]["minReplicas"], item["spec"]["maxReplicas"]) for item in fallback}
    assert limits == {
        item["metadata"]["name"]: (item["spec"]["minReplicaCount"], item["spec"]["maxReplicaCount"]) for item in scaled
    }


def test_model_servers_have_the_options_that_weavegen_needs() -> None:
    document = (ROOT / "docs" / "servers.md").read_text().replace("\\\n", " ")
    line = next(line for line in document.splitlines() if line.strip().startswith("vllm serve MODEL"))
    wanted = set(re.findall(r"--[a-z-]+", line))
    [container] = [container for name, container in containers() if name == "vllm"]
    for given in (COMPOSE["services"]["vllm"]["command"], container["args"]):
        assert wanted <= {word.split("=")[0] for word in given}
    assert wanted <= set(vllm.FLAGS)


def test_the_image_contains_what_the_code_needs() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"(?m)^COPY (?!--from)(?:--\S+ )?(.+) \S+$", text)
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed, name
    licenses = re.search(r'license-files = \["(.+)"\]', (ROOT / "pyproject.toml").read_text())
    assert licenses is not None
    assert licenses[1] in " ".join(copied).split()
    packaged = re.search(r"include = \[(.*)\]", (ROOT / "pyproject.toml").read_text())
    assert packaged is not None
    assert set(re.findall(r'"(\w+)\*"', packaged[1])) <= set(" ".join(copied).split())
    assert {"bubblewrap", "tmux", "nano", "tini"} <= set(text.split())
    assert re.search(r"(?m)^USER [1-9]", text)
    home = re.search(r"WEAVEGEN_HOME=(\S+)", text)
    assert home is not None
    assert not Path(home[1]).is_relative_to("/usr")
    assert image_root.PYTHON  # boxes see /usr, where the image's base interpreter is
    versions = subprocess.run(
        ["sed", "-n", r"s/ *\\$//; /==/p", ROOT / "requirements.lock"], capture_output=True, text=True, check=True
    ).stdout
    assert r"sed -n 's/ *\\$//; /==/p' requirements.lock" in text.replace(r"\\\\", r"\\")
    assert all(re.fullmatch(r"[\w.-]+==\S+( ; .+)?", line) for line in versions.splitlines())
    assert len(versions.splitlines()) == (ROOT / "requirements.lock").read_text().count("==") - versions.count(" == ")


def test_scripts_have_valid_shell_syntax() -> None:
    for script in DEPLOY.glob("*.sh"):
        assert script.stat().st_mode & 0o111
        subprocess.run(["sh", "-n", script], check=True)


def test_what_a_wheel_needs_from_debian_is_what_its_container_has() -> None:
    section = DOCUMENT.split("## Install without a checkout\n")[1].split("\n## ")[0]
    named = re.search(r"apt-get install ([a-z0-9 -]+)`", section)
    given = re.search(r"(?m)^python=(\S+) boxes=(\S+)$", (ROOT / "scripts" / "debian.sh").read_text())
    assert named is not None
    assert given is not None
    only_to_build = {"git", "ca-certificates"}
    assert {"python3", *named[1].split()} == set(",".join(given.groups()).split(",")) - only_to_build
