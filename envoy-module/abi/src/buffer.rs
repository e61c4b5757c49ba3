//! Conversions of bytes and headers that pass between Envoy and the module.

use std::ptr;

use crate::sys::{EnvoyBuffer, ModuleBuffer, ModuleHttpHeader};

/// Lends bytes to Envoy. They need to live for one call only, as Envoy copies what it keeps.
pub fn lent(bytes: &[u8]) -> ModuleBuffer {
    ModuleBuffer {
        ptr: bytes.as_ptr().cast(),
        length: bytes.len(),
    }
}

/// As [`lent`]; `None` gives a null pointer, with which Envoy removes a header.
pub fn lent_or_null(bytes: Option<&[u8]>) -> ModuleBuffer {
    let null = ModuleBuffer {
        ptr: ptr::null(),
        length: 0,
    };
    bytes.map_or(null, lent)
}

/// As [`lent`], for headers.
pub fn lent_headers(headers: &[(&str, String)]) -> Vec<ModuleHttpHeader> {
    let header = |(name, value): &(&str, String)| ModuleHttpHeader {
        key_ptr: name.as_ptr().cast(),
        key_length: name.len(),
        value_ptr: value.as_ptr().cast(),
        value_length: value.len(),
    };
    headers.iter().map(header).collect()
}

/// A buffer for Envoy to fill in.
pub const EMPTY: EnvoyBuffer = EnvoyBuffer {
    ptr: ptr::null(),
    length: 0,
};

/// The bytes that Envoy points to.
///
/// # Safety
///
/// For as long as `'a` lasts, Envoy must neither change nor free them.
pub unsafe fn bytes<'a>(buffer: EnvoyBuffer) -> &'a [u8] {
    if buffer.ptr.is_null() {
        return &[];
    }
    // SAFETY: the pointer is not null, Envoy gives the true length, and the caller vouches for the lifetime.
    unsafe { std::slice::from_raw_parts(buffer.ptr.cast(), buffer.length) }
}

/// The array that Envoy points to.
///
/// # Safety
///
/// As for [`bytes`]; `length` must be the number of elements.
pub unsafe fn array<'a, T>(first: *const T, length: usize) -> &'a [T] {
    if first.is_null() {
        return &[];
    }
    // SAFETY: the pointer is not null, and the caller vouches for length and lifetime.
    unsafe { std::slice::from_raw_parts(first, length) }
}
