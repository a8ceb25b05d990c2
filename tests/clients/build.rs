//! Takes the Rust program out of the README, so that what stands there is what is built.

use std::path::Path;
use std::{env, fs};

const README: &str = "../../README.md";

fn main() {
    println!("cargo:rerun-if-changed={README}");
    let readme = fs::read_to_string(README).expect("README.md");
    let (_, rest) = readme.split_once("<!-- driver.rs -->\n```rust\n").expect("the block driver.rs");
    let (program, _) = rest.split_once("```\n").expect("its end");
    let folder = env::var("OUT_DIR").expect("OUT_DIR");
    fs::write(Path::new(&folder).join("driver.rs"), program).expect("driver.rs");
}
