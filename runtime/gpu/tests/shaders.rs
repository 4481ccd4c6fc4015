//! Every family of kernels is a valid shader; no driver is needed for that.

mod templates;

use kiln_gpu::language::{cuda, wgsl};

#[test]
fn kernels_are_valid_shaders() {
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let capabilities = Capabilities::SHADER_FLOAT16;
    let mut sources = Vec::new();
    for template in templates::all() {
        let source = wgsl::source(&template.kernel());
        let module = match naga::front::wgsl::parse_str(&source) {
            Ok(module) => module,
            Err(error) => panic!("{template:?}: {}\n{source}", error.emit_to_string(&source)),
        };
        let validated = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
        if let Err(error) = validated {
            panic!("{template:?}: {}\n{source}", error.emit_to_string(&source));
        }
        sources.push(source);
    }
    // Browsers have a compiler of their own, which `scripts/web.sh` asks too.
    if let Some(file) = std::env::var_os("KILN_SHADERS") {
        std::fs::write(file, sources.join("\0")).expect("a file for the sources");
    }
}

/// What is stored narrow, computed wide and told in two words. A device has no dtype that its language has not; were such a kernel made
/// for it all the same, it would not be some other one.
#[test]
fn other_dtypes_read_well_in_cuda_alone() {
    for (name, template) in templates::readable_in_cuda_alone() {
        let kernel = template.kernel();
        insta::assert_snapshot!(name, cuda::source(&kernel));
        assert!(std::panic::catch_unwind(|| wgsl::source(&kernel)).is_err(), "{name} in WGSL");
    }
    for template in templates::of_cuda_alone() {
        assert!(cuda::source(&template.kernel()).contains("__global__"), "{template:?}");
    }
}

#[test]
fn sources_read_well() {
    for (name, template) in templates::readable() {
        let kernel = template.kernel();
        insta::assert_snapshot!(name, wgsl::source(&kernel));
        insta::assert_snapshot!(format!("{name}_cuda"), cuda::source(&kernel));
    }
}
