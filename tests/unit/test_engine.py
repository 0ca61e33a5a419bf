from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from build.bundle import Bundle, Engine, StoreRef
from build.errors import UsageError
from supervisor.engine.contract import MANAGED, TWINS, NodeLocal, RankCommand, RankPaths, gang_commands, spec_hash
from supervisor.settings import Serve, engine_environment

BINARIES = ("/s/k-server/tensorfold-native", "/s/k-follower/tf-dsv41-lanes")


def bundle(world: int = 2, **changes: object) -> Bundle:
    ref = StoreRef("k-thing")
    made = Bundle(
        target="demo",
        variant="plain",
        served_name="twinfold-demo",
        world_size=world,
        window_tokens=65536,
        prefill_tokens_per_s=20_000,
        engine=Engine(ref, ref, ref, ref),
        model=ref,
        rank_caches=tuple(StoreRef(f"k-rank{r}") for r in range(world)),
        rank_cache_bytes=(1,) * world,
        kit=ref,
        token_map=ref,
        engram=ref,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def paths(world: int = 2, **changes: object) -> tuple[RankPaths, ...]:
    return tuple(
        dataclasses.replace(RankPaths("/m", f"/c/rank{r}", "/kit", "/map.json", "/engram"), **changes)  # type: ignore[arg-type]
        for r in range(world)
    )


def commands(serve: Serve | None = None, world: int = 2, **changes: object) -> tuple[RankCommand, ...]:
    given = {"binaries": BINARIES, "master": "192.0.2.1", **changes}
    made = given.pop("bundle", bundle(world))
    places = given.pop("paths", paths(world))
    return gang_commands(made, serve or Serve(), given.pop("context", 32768), places, **given)  # type: ignore[arg-type]


def flag(command: RankCommand, name: str) -> str | None:
    return command.argv[command.argv.index(name) + 1] if name in command.argv else None


def test_rank_0_gets_the_contracts_arguments_and_required_environment() -> None:
    rank0 = commands()[0]
    assert rank0.argv == (
        *(BINARIES[0], "serve", "/m", "--host", "127.0.0.1", "--port", "8888", "--name", "twinfold-demo", "--context", "32768"),
        *(
            "--parallel",
            "4",
            "--max-tokens",
            "32768",
            "--temperature",
            "1.0",
            "--top-p",
            "0.95",
            "--top-k",
            "20",
            "--backend",
            "cuda",
        ),
    )
    assert dict(rank0.env) == {
        "TF_TP_WORLD": "2",
        "TF_TP_MASTER": "192.0.2.1",
        "TF_TP_PORT": "29620",
        "TF_DS_RANK_CACHE": "/c/rank0",
        "TF_DS_KIT": "/kit",
        "TENSORFOLD_CUDA_KERNELS": "/kit/aot",
        "TF_DS_TOKEN_MAP": "/map.json",
        "TF_DS_ENGRAM": "/engram",
    }


@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_other_rank_gets_the_followers_positionals_and_flags(world: int) -> None:
    made = commands(world=world)
    assert [command.rank for command in made] == list(range(world))
    for command in made[1:]:
        head = ("/m", f"/c/rank{command.rank}", str(command.rank), str(world), "192.0.2.1", "29620", "/kit")
        assert command.argv[:8] == (BINARIES[1], *head)
        assert flag(command, "--pool") == flag(command, "--context") == flag(made[0], "--context")
        assert (flag(command, "--engram"), flag(command, "--token-map")) == ("/engram", "/map.json")


def test_settings_that_are_off_or_unset_leave_no_flag() -> None:
    rank0 = commands(Serve(), paths=paths(engram=None))[0]
    for name in ("--thinking", "--no-thinking", "--reasoning-effort", "--thinking-budget", "--api-key-file", "--no-drafts"):
        assert name not in rank0.argv
    assert "TF_DS_ENGRAM" not in dict(rank0.env)


def test_every_serve_setting_reaches_the_engine() -> None:
    serve = Serve(
        thinking=False, reasoning_effort="low", thinking_budget=64, drafts=False, prompt_cache_gib=1.5, served_name="me", port=9
    )
    rank0, rank1 = commands(serve, paths=paths(api_key_file="/key"))
    assert flag(rank0, "--reasoning-effort") == "low"
    assert flag(rank0, "--thinking-budget") == "64"
    assert flag(rank0, "--prompt-cache-gib") == "1.5"
    assert flag(rank0, "--name") == "me"
    assert flag(rank0, "--api-key-file") == "/key"
    assert {"--no-thinking", "--no-drafts"} <= set(rank0.argv)
    assert flag(rank1, "--drafts") == "0"
    assert "--thinking" in commands(Serve(thinking=True))[0].argv


@pytest.mark.parametrize(("name", "twin"), sorted(TWINS.items()))
def test_a_switch_reaches_the_followers_as_variable_and_as_flag(name: str, twin: str) -> None:
    rank0, rank1 = commands(engine_env=[(name, "1")])
    assert dict(rank0.env)[name] == dict(rank1.env)[name] == flag(rank1, twin) == "1"


def test_engine_switches_go_to_every_rank_and_never_to_one() -> None:
    switches = [("TF_DS_IDX_SPLIT", "1"), ("PREFILL_INTERLEAVE_MS", "20"), ("TF_DS_IMAGE_CACHE", "0"), ("NCCL_DEBUG", "WARN")]
    for command in commands(world=4, engine_env=switches):
        assert set(switches) <= set(command.env)


def test_a_users_variable_wins_over_the_bundles_and_over_what_was_found() -> None:
    found = NodeLocal(("rocep1s0f1",), 5, socket_ifname="enp1s0f1np1")
    made = commands(
        bundle=bundle(env=(("TF_DS_GRAPHS", "1"),)),
        node_locals=(found, found),
        engine_env=[("TF_DS_GRAPHS", "0"), ("NCCL_IB_GID_INDEX", "3")],
    )
    for command in made:
        assert dict(command.env)["TF_DS_GRAPHS"] == "0"
        assert dict(command.env)["NCCL_IB_GID_INDEX"] == "3"
    assert flag(made[1], "--graphs") == "0"


def test_node_local_values_stay_on_their_node() -> None:
    rank0, rank1 = commands(node_locals=(NodeLocal(("a0", "a1"), 5), NodeLocal(("b0", "b1"), None, "192.0.2.0/24", "enp1")))
    assert dict(rank0.env)["NCCL_IB_HCA"] == dict(rank0.env)["TF_RDMA_DEVICES"] == "a0,a1"
    assert dict(rank0.env)["NCCL_IB_GID_INDEX"] == dict(rank0.env)["TF_RDMA_GID_INDEX"] == "5"
    env = dict(rank1.env)
    assert (flag(rank1, "--rdma"), env["NCCL_IB_HCA"], env["NCCL_SOCKET_IFNAME"]) == ("b0,b1", "b0,b1", "enp1")
    assert (env["NCCL_IB_ROCE_VERSION_NUM"], env["NCCL_IB_ADDR_RANGE"]) == ("2", "192.0.2.0/24")
    assert not {"NCCL_IB_GID_INDEX", "TF_RDMA_GID_INDEX"} & env.keys()


def test_the_engines_reserve_agrees_with_the_floor_unless_a_user_says_otherwise() -> None:
    for command in commands(reserve_gib=4.0):
        assert dict(command.env)["TENSORFOLD_MEMORY_RESERVE_GIB"] == "4"
    assert (
        dict(commands(reserve_gib=4.0, engine_env=[("TENSORFOLD_MEMORY_RESERVE_GIB", "6")])[0].env)[
            "TENSORFOLD_MEMORY_RESERVE_GIB"
        ]
        == "6"
    )


@pytest.mark.parametrize("name", sorted(MANAGED))
def test_variables_of_the_launch_itself_are_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        commands(engine_env=[(name, "x")])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"master": "spark-a"}, "IPv4"),
        ({"paths": paths(1)}, "2 ranks"),
        ({"node_locals": (NodeLocal(),)}, "2 ranks"),
        ({"context": 65537}, "window is 65536"),
        ({"context": 0}, "window is 65536"),
        ({"serve": Serve(host="0.0.0.0")}, "without a key"),
    ],
)
def test_what_the_engine_cannot_take_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        commands(**changes)  # type: ignore[arg-type]


def test_the_api_leaves_loopback_with_a_key_or_by_leave() -> None:
    assert flag(commands(Serve(host="0.0.0.0"), paths=paths(api_key_file="/key"))[0], "--host") == "0.0.0.0"
    assert flag(commands(Serve(host="0.0.0.0", allow_unauthenticated=True))[0], "--host") == "0.0.0.0"


def test_no_key_stands_on_a_command_line(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret")
    for command in commands(paths=paths(api_key_file=str(key))):
        assert "s3cret" not in " ".join(command.argv) + str(command.env)


def test_the_spec_hash_leaves_out_what_is_resolved_at_each_launch() -> None:
    before = commands(node_locals=(NodeLocal(("a",), 5), NodeLocal(("b",), 4)))
    after = commands(node_locals=(NodeLocal(("a",), 3), NodeLocal(("c",), 4, socket_ifname="x")))
    assert spec_hash(before, "k-bundle") == spec_hash(after, "k-bundle")
    assert spec_hash(before, "k-bundle") != spec_hash(before, "k-other")


@pytest.mark.parametrize("change", [{"context": 1024}, {"serve": Serve(parallel=2)}, {"engine_env": [("TF_DS_GRAPHS", "1")]}])
def test_the_spec_hash_moves_with_every_setting(change: dict[str, object]) -> None:
    assert spec_hash(commands()) != spec_hash(commands(**change))  # type: ignore[arg-type]


def test_a_users_own_device_list_is_part_of_the_spec() -> None:
    one = commands(engine_env=[("TF_RDMA_DEVICES", "a")], node_locals=(NodeLocal(("x",)), NodeLocal(("x",))))
    two = commands(engine_env=[("TF_RDMA_DEVICES", "b")], node_locals=(NodeLocal(("x",)), NodeLocal(("x",))))
    assert spec_hash(one) != spec_hash(two)


def test_empty_engine_variables_count_as_not_set_and_the_environment_wins() -> None:
    environ = {
        "NCCL_IB_GID_INDEX": "",
        "TF_DS_IDX_SPLIT": "1",
        "NCCL_RAILS": "2",
        "TF_REF": "main",
        "PATH": "/bin",
        "HF_TOKEN": "t",
    }
    table = [("NCCL_IB_GID_INDEX", "3"), ("TF_DS_IDX_SPLIT", "0"), ("TENSORFOLD_X", "y")]
    assert engine_environment(table, environ) == (("TENSORFOLD_X", "y"), ("TF_DS_IDX_SPLIT", "1"))


@pytest.mark.parametrize(
    "name", ["TF_VAR_password", "TF_TOKEN_app_terraform_io", "TF_CLI_CONFIG_FILE", "TF_CPP_MIN_LOG_LEVEL", "TF_LOG"]
)
def test_another_programs_variables_stay_out_of_the_ranks_environment(name: str) -> None:
    assert engine_environment((), {name: "secret", "TF_DS_GRAPHS": "1"}) == (("TF_DS_GRAPHS", "1"),)
    assert engine_environment(((name, "meant"),), {name: "secret"}) == ((name, "meant"),)


@pytest.mark.parametrize("pair", [("PATH", "/bin"), ("TF_REF", "main"), ("HF_TOKEN", "x")])
def test_a_table_with_other_variables_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=pair[0]):
        engine_environment([pair], {})
