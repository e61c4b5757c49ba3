//! A filter that does nothing; `make bench` compares Plimsoll's filter with it.
#![allow(missing_docs)]

#[cfg(target_arch = "wasm32")]
mod noop {
    use proxy_wasm::{
        traits::{Context, HttpContext, RootContext},
        types::ContextType,
    };

    struct Noop;

    impl Context for Noop {}
    impl HttpContext for Noop {}
    impl RootContext for Noop {
        fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
            Some(Box::new(Noop))
        }

        fn get_type(&self) -> Option<ContextType> {
            Some(ContextType::HttpContext)
        }
    }

    proxy_wasm::main! {{
        proxy_wasm::set_root_context(|_| Box::new(Noop));
    }}
}
