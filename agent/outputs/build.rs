//! Generates ORCA's messages and server from the protocol with protox, which needs no installed `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let protocol = protox::compile(["orca.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(false)
        .compile_fds(protocol)?;
    Ok(())
}
