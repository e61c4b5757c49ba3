#!/usr/bin/env python3
"""Compares the declarations of this crate with the header of an Envoy.

    envoy-module/abi/check_header.py [--record COMMIT] .../source/extensions/dynamic_modules/abi/abi.h

To be run for each new version of Envoy: the linker reports a missing callback, but nothing else reports one
whose parameters have changed. Prints the differences, and fails if there are any. Without any, `--record`
writes to compared.json what was compared, and with the header of which commit of Envoy.
"""

import argparse
import hashlib
import json
import re
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
# What was compared last. No script fetches Envoy's header, so the tests compare with this.
COMPARED = Path(__file__).parent / "compared.json"
PREFIX = "envoy_dynamic_module_"
TYPE = f"{PREFIX}type_"
# C types by their Rust names.
PLAIN = {
    "bool": "bool",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "usize": "size_t",
    "c_char": "char",
    "c_void": "void",
}


@dataclass
class Declarations:
    """Types as C spells them, without spaces before stars."""

    functions: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    enumerations: dict[str, dict[str, int]] = field(default_factory=dict)
    structures: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)


def split(text: str) -> list[str]:
    """The non-empty parts between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def spelled(text: str) -> str:
    return re.sub(r"\s*\*", "*", " ".join(text.split()))


def c_parameter(text: str) -> tuple[str, str]:
    """Type and name of a parameter."""
    kind, name = re.fullmatch(r"(.*?)(\w+)", text.strip(), re.DOTALL).groups()
    return spelled(kind), name


def c_declarations(text: str) -> Declarations:
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^#[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    found = Declarations()
    for name, body in re.findall(r"typedef enum (\w+)\s*\{(.*?)\}", text, re.DOTALL):
        value = -1
        values = found.enumerations.setdefault(name, {})
        for entry in split(body):
            key, _, number = (part.strip() for part in entry.partition("="))
            value = int(number, 0) if number else value + 1
            values[key] = value
    for name, body in re.findall(r"typedef struct (\w+)\s*\{(.*?)\}", text, re.DOTALL):
        fields = [c_parameter(entry) for entry in body.split(";") if entry.strip()]
        found.structures[name] = [(key, kind) for kind, key in fields]
    for kind, name in re.findall(rf"typedef ((?:const )?\w+\s*\*)\s*({TYPE}\w+);", text):
        found.aliases[name] = spelled(kind)
    function = rf"([\w\s*]+?)\b({PREFIX}(?:on|callback)_\w+)\s*\(([^()]*)\)\s*;"
    for result, name, parameters in re.findall(function, text):
        kinds = [c_parameter(one)[0] for one in split(parameters) if one != "void"]
        found.functions[name] = (spelled(result), kinds)
    return found


def c_type(text: str) -> str:
    """The C spelling of a Rust type."""
    text = text.strip()
    for pointer, before in (("*mut ", ""), ("*const ", "const ")):
        if text.startswith(pointer):
            return f"{before}{c_type(text.removeprefix(pointer))}*"
    name = text.split("::")[-1]
    return PLAIN.get(name) or TYPE + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def rust_declarations(text: str) -> Declarations:
    text = re.sub(r"//[^\n]*", "", text)
    found = Declarations()
    for name, body in re.findall(r"^    (\w+) \{\n((?:        \w+ = \d+,\n)+)    \}", text, re.MULTILINE):
        values = re.findall(r"(\w+) = (\d+)", body)
        kind = c_type(name)
        found.enumerations[kind] = {f"{kind}_{key}": int(value) for key, value in values}
    for name, body in re.findall(r"#\[repr\(C\)\].*?pub struct (\w+) \{(.*?)\n\}", text, re.DOTALL):
        fields = re.findall(r"pub (\w+): ([^,]+),", body)
        found.structures[c_type(name)] = [(key, c_type(kind)) for key, kind in fields]
    for name, kind in re.findall(r"^pub type (\w+) = (.*?);", text, re.MULTILINE):
        found.aliases[c_type(name)] = c_type(kind)
    function = rf"fn ({PREFIX}(?:on|callback)_\w+)\(([^()]*)\)(?: -> ([^;{{]+))?\s*[;{{]"
    for name, parameters, result in re.findall(function, text):
        kinds = [c_type(one.split(":", 1)[1]) for one in split(parameters)]
        found.functions[name] = (c_type(result) if result else "void", kinds)
    return found


def differences(header: Declarations, ours: Declarations) -> list[str]:
    """The differences between our declarations and the header, one line each."""
    told = []
    for name, (result, kinds) in ours.functions.items():
        if name not in header.functions:
            told.append(f"{name}: is not in the header")
            continue
        there_result, there = header.functions[name]
        if len(there) != len(kinds):
            told.append(f"{name}: has {len(there)} parameters, not {len(kinds)}")
        pairs = [("result", there_result, result)]
        pairs += [(f"parameter {n}", *pair) for n, pair in enumerate(zip(there, kinds, strict=False), 1)]
        told += [
            f"{name}: {what} is {there}, not {here}"
            for what, there, here in pairs
            if here not in (there, header.aliases.get(there))
        ]
    for name, values in ours.enumerations.items():
        there = header.enumerations.get(name, {})
        told += [
            f"{key}: is {there.get(key, 'not in the header')}, not {value}"
            for key, value in values.items()
            if there.get(key) != value
        ]
    for what, there, here in (
        ("structures", header.structures, ours.structures),
        ("aliases", header.aliases, ours.aliases),
    ):
        told += [
            f"{name}: is {there.get(name, f'not among the {what}')}, not {kind}"
            for name, kind in here.items()
            if there.get(name) != kind
        ]
    return told


def version(text: str) -> str:
    found = re.search(r'ABI_VERSION "(.*?)"', text)
    return found[1] if found else "unknown"


def own_declarations() -> Declarations:
    return rust_declarations("\n".join(path.read_text() for path in sorted(SOURCES.glob("*.rs"))))


def fingerprint(declarations: Declarations) -> dict[str, int | str]:
    """The number of declarations of each kind, and a hash of all, in whatever order they are written."""
    kinds = asdict(declarations)
    counts = {kind: len(found) for kind, found in kinds.items()}
    return counts | {"sha256": hashlib.sha256(json.dumps(kinds, sort_keys=True).encode()).hexdigest()}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="check_header.py",
        description="Compares the declarations of this crate with the header of an Envoy.",
    )
    parser.add_argument("header", type=Path)
    parser.add_argument("--record", metavar="COMMIT", help="of Envoy, which has this header")
    args = parser.parse_args()
    text, ours = args.header.read_text(), own_declarations()
    told = differences(c_declarations(text), ours)
    print(f"{len(ours.functions)} functions, ABI {version(text)}: {len(told)} differences")
    print(*told, sep="\n")
    if args.record and not told:
        record = {"commit": args.record, "abi": version(text)} | fingerprint(ours)
        COMPARED.write_text(json.dumps(record, indent=2) + "\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
