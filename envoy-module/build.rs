//! Tells the linker what Cargo does not know of.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The library's thread, panic hook and logger are there as long as the process: it must not be unloaded, even where a
    // configuration lacks `do_not_close`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
