//! Headers as Envoy holds them.

use std::marker::PhantomData;

use crate::{
    buffer::bytes,
    sys::{EnvoyBuffer, EnvoyHttpHeader},
};

/// Headers of a request or a response, in order; names are in lower case.
#[derive(Debug)]
pub struct Headers<'a> {
    headers: Vec<EnvoyHttpHeader>,
    hook: PhantomData<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// # Safety
    ///
    /// For as long as `'a` lasts, Envoy must neither change nor free them.
    pub(crate) unsafe fn new(headers: Vec<EnvoyHttpHeader>) -> Self {
        Headers {
            headers,
            hook: PhantomData,
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let text = |ptr, length| {
            // SAFETY: as the caller of `new` promised.
            unsafe { bytes(EnvoyBuffer { ptr, length }) }
        };
        self.headers.iter().map(move |header| {
            let name = text(header.key_ptr, header.key_length);
            (name, text(header.value_ptr, header.value_length))
        })
    }

    /// The first value of the header with this name, in whatever case.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        let mut headers = self.iter();
        let found = headers.find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| value)
    }
}
