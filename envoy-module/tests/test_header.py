"""The comparison of the declarations with Envoy's header."""

import json

import pytest
from check_header import (
    COMPARED,
    SOURCES,
    c_declarations,
    differences,
    fingerprint,
    own_declarations,
    rust_declarations,
)

HEADER = """
// A comment, (with) brackets; and a semicolon.
typedef const char* envoy_dynamic_module_type_text_ptr;
typedef enum envoy_dynamic_module_type_colour {
  envoy_dynamic_module_type_colour_Red,
  // Not ours.
  envoy_dynamic_module_type_colour_Green = 4,
  envoy_dynamic_module_type_colour_Blue
} envoy_dynamic_module_type_colour;
typedef struct envoy_dynamic_module_type_pair {
  envoy_dynamic_module_type_text_ptr ptr;
  size_t length;
} envoy_dynamic_module_type_pair;
/**
 * Paints.
 */
bool envoy_dynamic_module_callback_paint(
    const envoy_dynamic_module_type_pair* pair, envoy_dynamic_module_type_colour colour,
    uint64_t* result);
void envoy_dynamic_module_on_dry(void);
"""
RUST = """
enumeration! {
    Colour {
        Red = 0,
        Blue = 5,
    }
}
pub type TextPtr = *const c_char;
#[repr(C)]
#[derive(Clone)]
pub struct Pair {
    pub ptr: TextPtr,
    pub length: usize,
}
unsafe extern "C" {
    pub fn envoy_dynamic_module_callback_paint(
        pair: *const Pair,
        colour: Colour,
        result: *mut u64,
    ) -> bool;
}
extern "C" fn envoy_dynamic_module_on_dry() {}
"""


def found(rust: str) -> list[str]:
    return differences(c_declarations(HEADER), rust_declarations(rust))


def test_equal_declarations_show_no_difference():
    assert not found(RUST)


@pytest.mark.parametrize(
    ("ours", "other", "told"),
    [
        ("callback_paint", "callback_draw", "callback_draw: is not in the header"),
        ("on_dry()", "on_dry(wet: bool)", "on_dry: has 0 parameters, not 1"),
        ("*mut u64", "*mut u32", "parameter 3 is uint64_t*, not uint32_t*"),
        ("*const Pair", "*mut Pair", "parameter 1 is const"),
        ("-> bool", "-> u32", "result is bool, not uint32_t"),
        ("Blue = 5", "Blue = 2", "colour_Blue: is 5, not 2"),
        ("Blue = 5", "Black = 5", "colour_Black: is not in the header, not 5"),
        ("length: usize", "length: u64", "type_pair: is"),
        ("*const c_char", "*mut c_char", "text_ptr: is const char*, not char*"),
    ],
)
def test_each_kind_of_difference_is_reported(ours, other, told):
    assert ours in RUST
    assert any(told in line for line in found(RUST.replace(ours, other)))


def test_all_declarations_of_the_crate_are_read():
    text = "\n".join(path.read_text() for path in SOURCES.glob("*.rs"))
    ours = own_declarations()
    assert len(ours.functions) == text.count("fn envoy_dynamic_module_")
    assert len(ours.enumerations) > 10
    assert {"envoy_dynamic_module_type_envoy_buffer", "envoy_dynamic_module_type_module_http_header"} <= set(
        ours.structures
    )


def test_the_declarations_are_those_that_were_compared_with_a_header():
    """Otherwise compare them: docs/releasing.md."""
    compared = json.loads(COMPARED.read_text())
    assert fingerprint(own_declarations()) == {
        key: value for key, value in compared.items() if key not in ("commit", "abi")
    }


@pytest.mark.parametrize(
    ("ours", "other"),
    [
        ("*mut u64", "*mut u32"),
        ("Blue = 5", "Blue = 2"),
        ("length: usize", "length: u64"),
        ("dry()", "wet()"),
    ],
)
def test_any_change_of_a_declaration_changes_the_fingerprint(ours, other):
    before, after = (fingerprint(rust_declarations(text)) for text in (RUST, RUST.replace(ours, other)))
    assert before != after
