//! Makes ORCA's messages and server of the protocol; by protox, so that no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let protocol = protox::compile(["orca.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(false)
        .compile_fds(protocol)?;
    Ok(())
}
