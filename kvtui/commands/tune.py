"""`kvtui tune`: the procedure on the operator's model and engine, new or resumed."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from kvtui.commands.tuning import add_screen_options, work
from kvtui.core.errors import InputError, SessionError
from kvtui.core.text import clean
from kvtui.engines.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvtui.procedure.setup import TuneRequest
    from kvtui.procedure.tune import Tuning

_EPILOG = """\
Exit status: 0 done, 1 done with findings, 2 an input cannot be used, 3 failed, 128+N ended by signal N.
Every value not given here is the preset's. Options that mean the same as in llama-server carry its names.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "tune",
        description="Five steps, one variable at a time: which context holds on this box, and the proof.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_engine(parser)
    _add_aim(parser)
    _add_settings(parser)
    _add_limits(parser)
    _add_session(parser)
    add_screen_options(parser)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """What is run, and how it is started or reached."""
    parser.add_argument("-m", "--model", metavar="FILE", help="the GGUF file to tune, or a model by its name")
    parser.add_argument("--engine", metavar="E", help="the kind of engine to drive: " + ", ".join(KINDS))
    parser.add_argument(
        "--engine-bin",
        metavar="PATH",
        help="the engine's program (default: $LLAMA_SERVER_BIN, $VLLM_BIN or $OLLAMA_BIN, PATH)",
    )
    parser.add_argument(
        "--engine-command",
        metavar="CMD",
        help="how a llama-server is started instead: 'numactl -N0 llama-server', or 'docker run --rm --name {name} "
        "--gpus all -p 127.0.0.1:{port}:{port} -v /models:/models:ro IMAGE'",
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        type=_assignment,
        metavar="NAME=VALUE",
        help="a variable for the engine (may be repeated); LLAMA_ARG_* of your own environment count as asked too",
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="an Ollama that runs, to be driven as it is: models are loaded and unloaded in it, and you are asked to "
        "restart it where a step needs other settings",
    )
    parser.add_argument(
        "--engine-log",
        metavar="FILE",
        help="the log of the engine at --url (default: the journal of unit ollama)",
    )


def _add_aim(parser: argparse.ArgumentParser) -> None:
    """What is to be reached."""
    parser.add_argument(
        "--preset",
        default="coding-agent",
        metavar="NAME|FILE",
        help="what the context is for (see the README)",
    )
    parser.add_argument(
        "--tasks",
        metavar="DIR",
        help="a folder of your own prompts (.txt, .md; NAME.expect beside it, or .toml), asked in every run that "
        "compares KV types",
    )
    parser.add_argument("--target-context", type=int, metavar="N", help="the context to reach, in tokens")
    parser.add_argument("--kv-type", metavar="TYPE", help="the type of step 3 (default: q8_0)")
    parser.add_argument(
        "-np", "--parallel", type=int, metavar="N", help="requests at the same time, tried in step 5"
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """What all runs share."""
    parser.add_argument("-b", "--batch-size", type=int, metavar="N", help="logical batch in tokens")
    parser.add_argument("-ub", "--ubatch-size", type=int, metavar="N", help="micro-batch in tokens")
    parser.add_argument(
        "-ngl", "--gpu-layers", type=_layers, metavar="N|all", help="layers on the GPU (default: all)"
    )
    parser.add_argument("--n-cpu-moe", type=int, metavar="N", help="layers whose experts stay on the CPU")
    parser.add_argument("-t", "--threads", type=int, metavar="N", help="the engine's CPU threads")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """What must be left, what is too slow, and where and how often it is measured."""
    parser.add_argument("--margin", type=float, metavar="GIB", help="memory that must stay free at the peak")
    parser.add_argument(
        "--reserve", type=float, metavar="GIB", help="memory to leave to others (default: what they hold now)"
    )
    parser.add_argument(
        "--min-decode", type=float, metavar="T/S", help="stop at the stage that decodes slower than this"
    )
    parser.add_argument(
        "--gpu",
        type=_numbers,
        metavar="N[,M]",
        help="the GPUs to use and to measure, as nvidia-smi counts them (default: all that the environment leaves)",
    )
    parser.add_argument(
        "--sample-hz",
        type=float,
        default=10.0,
        metavar="N",
        help="memory readings per second, 1 to 50 (default: 10)",
    )


def _add_session(parser: argparse.ArgumentParser) -> None:
    """What the engine is told beside, and how the session runs."""
    parser.add_argument(
        "--engine-args",
        default="",
        metavar="ARGS",
        help="further options for the engine, as one quoted string (or as they are, behind --)",
    )
    parser.add_argument("engine_words", nargs="*", metavar="-- OPTIONS", help=argparse.SUPPRESS)
    parser.add_argument(
        "--insist",
        action="store_true",
        help="without a screen: run stages although the forecast says that they cannot fit",
    )
    parser.add_argument(
        "--resume", metavar="SESSION", help="go on with an interrupted session (`last`: the newest)"
    )
    parser.add_argument(
        "--replay",
        metavar="REPORT",
        help="do a recorded session again and compare: its report.json, or its name; -m, --engine and --gpu are this "
        "box's",
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="with --replay: take over the engine options recorded with it, unasked",
    )


def run(args: argparse.Namespace) -> int:
    """0 done, 1 done with findings, 3 failed, 128+N ended by signal N."""
    if args.replay:
        from kvtui.commands.replaying import replay

        return replay(args, _request(args))
    if args.resume:
        return work(resume_job(args.resume), args, unattended=False)
    if not args.model:
        raise InputError("no model given", hint="kvtui tune -m model.gguf, or kvtui demo")

    def job(note: Callable[[str], None]) -> Tuning:
        from kvtui.procedure.setup import prepare

        return prepare(_request(args), note)

    return work(job, args, unattended=False)


def _request(args: argparse.Namespace) -> TuneRequest:
    from kvtui.procedure.setup import TuneRequest

    return TuneRequest(
        model=args.model,
        engine=args.engine,
        engine_bin=args.engine_bin,
        engine_command=args.engine_command,
        url=args.url,
        engine_log=args.engine_log,
        preset=args.preset,
        target_context=args.target_context,
        kv_type=args.kv_type,
        n_parallel=args.parallel,
        n_batch=args.batch_size,
        n_ubatch=args.ubatch_size,
        n_gpu_layers=args.gpu_layers,
        n_cpu_moe=args.n_cpu_moe,
        threads=args.threads,
        margin_gib=args.margin,
        reserve_gib=args.reserve,
        min_decode_tps=args.min_decode,
        tasks=args.tasks,
        extra=(*_words(args.engine_args), *_options(args.engine_words)),
        env=tuple(args.env),
        gpus=args.gpu,
        sample_hz=args.sample_hz,
    )


def resume_job(name: str) -> Callable[[Callable[[str], None]], Tuning]:
    """The job of going on with the session called `name`."""

    def job(note: Callable[[str], None]) -> Tuning:
        from kvtui.procedure.setup import resume
        from kvtui.session.store import find

        try:
            folder = find(name)
        except SessionError as error:
            raise InputError(error.what, hint=error.hint) from error
        return resume(folder, note)

    return job


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(
            f"--engine-args: {clean(text, 120)}: {str(error).lower()}", hint="close what is quoted"
        ) from None


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 4 for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the number of a GPU, or several with commas between"
        )
    return tuple(int(part) for part in parts)


def _options(words: list[str]) -> tuple[str, ...]:
    """What stands behind `--`."""
    if words and not words[0].startswith("-"):
        raise InputError(
            f"{clean(words[0])}: not an option",
            hint="the model goes behind -m, the engine's options behind --",
        )
    return tuple(words)


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not name.isascii() or clean(value, len(value) + 1) != value:
        raise argparse.ArgumentTypeError(f"{clean(text, 80)!r} is not NAME=VALUE")
    return name, value


def _layers(text: str) -> int:
    if text == "all":
        return 999
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of layers or `all`")
    return int(text)
