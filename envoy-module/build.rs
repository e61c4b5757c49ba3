//! Passes linker arguments for which Cargo has no setting.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The library's thread, panic hook and logger live as long as the process, so the library must not be unloaded,
    // even if a configuration lacks `do_not_close`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
