"""Write the parameters of a trained policy, and how to compute with them, into a file for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from isobatch.cli import console
from isobatch.cli.flags import Parser, add_policy, chosen_seed


def add_flags(parser: Parser) -> None:
    parser.add_argument("run_dir", type=Path, metavar="RUN", help="directory of a run")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="file to write, .npz, .safetensors, .onnx or .pt"
    )
    parser.add_argument("--format", metavar="{npz,safetensors,onnx,pt}", help="default: what the file's ending says")
    add_policy(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    policy_seed = chosen_seed(args)
    from isobatch.policies.agent import learned_of
    from isobatch.policies.exports import export, format_of
    from isobatch.training.loading import load_run

    format_name = format_of(args.out, args.format)
    learned = learned_of(load_run(args.run_dir, args.checkpoint, console.say), policy_seed)
    description = export(learned, args.out, format_name)
    if args.json:
        console.print_json({"file": str(args.out), "format": format_name, "description": description})
        return 0
    for part, layers in (("policy", description["policy"]["layers"]), ("value", description["value"]["layers"])):
        shapes = [" x ".join(map(str, layer.get("shape", []))) or "-" for layer in layers]
        rows = [
            [layer["name"], layer["kind"], shape, layer.get("activation") or "-"]
            for layer, shape in zip(layers, shapes, strict=True)
        ]
        console.out.print(console.table(part, ["layer", "kind", "weight", "activation"], rows))
        console.out.print()
    console.out.print(
        f"written: {args.out} ({learned.config.algo} on {learned.config.env}, seed {learned.seed}, "
        f"iteration {learned.iteration})",
    )
    return 0
