//! Every family of kernels is a valid shader; no driver is needed for that.

mod templates;

use kiln_gpu::kernels::Template;
use kiln_gpu::language::cuda;
use kiln_gpu::language::wgsl::{self, Parameters, Wide};
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

/// The source of a kernel, which is valid with the capabilities.
fn validated(template: &Template, wide: Wide, capabilities: Capabilities) -> String {
    let source = wgsl::source(&template.kernel(), wide, Parameters::Uniform);
    let module = match naga::front::wgsl::parse_str(&source) {
        Ok(module) => module,
        Err(error) => panic!("{template:?}: {}\n{source}", error.emit_to_string(&source)),
    };
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    if let Err(error) = validator.validate(&module) {
        panic!("{template:?}: {}\n{source}", error.emit_to_string(&source));
    }
    source
}

#[test]
fn kernels_are_valid_shaders() {
    // Browsers have no numbers of 64 bits: integers are pairs of words there.
    let kernels = templates::all().into_iter().chain(templates::of_integers_of_64_bits());
    let sources: Vec<String> =
        kernels.map(|template| validated(&template, Wide::Pairs, Capabilities::SHADER_FLOAT16)).collect();
    // Nor subgroups that are told apart.
    for template in templates::subgroups::of_any_size() {
        validated(&template, Wide::Pairs, Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP);
    }
    // Browsers have a compiler of their own, which `scripts/web.sh` asks too.
    if let Some(file) = std::env::var_os("KILN_SHADERS") {
        std::fs::write(file, sources.join("\0")).expect("a file for the sources");
    }
}

#[test]
fn kernels_with_numbers_of_64_bits_are_valid_shaders() {
    let capabilities = Capabilities::SHADER_FLOAT16 | Capabilities::SHADER_INT64 | Capabilities::FLOAT64;
    for template in templates::of_64_bits() {
        validated(&template, Wide::Native, capabilities);
    }
}

/// What is stored narrow, computed wide and told in two words. A device has no dtype that its language has not; were such a kernel made
/// for it all the same, it would not be some other one.
#[test]
fn other_dtypes_read_well_in_cuda_alone() {
    for (name, template) in templates::readable::in_cuda_alone() {
        let kernel = template.kernel();
        insta::assert_snapshot!(name, cuda::source(&kernel));
        let in_wgsl = std::panic::catch_unwind(|| wgsl::source(&kernel, Wide::Pairs, Parameters::Uniform));
        assert!(in_wgsl.is_err(), "{name} in WGSL");
    }
    for template in templates::of_cuda_alone() {
        assert!(cuda::source(&template.kernel()).contains("__global__"), "{template:?}");
    }
}

#[test]
fn sources_read_well() {
    for (name, template) in templates::readable::in_both() {
        let kernel = template.kernel();
        insta::assert_snapshot!(name, wgsl::source(&kernel, Wide::Pairs, Parameters::Uniform));
        insta::assert_snapshot!(format!("{name}_cuda"), cuda::source(&kernel));
    }
    for (name, template) in templates::readable::in_wgsl_alone() {
        insta::assert_snapshot!(name, wgsl::source(&template.kernel(), Wide::Native, Parameters::Immediate));
    }
}

/// What follows a kernel within it may read all that the kernel does not write, and nothing else.
#[test]
fn what_kernels_write_beside_their_results_is_known() {
    let all = templates::all().into_iter().chain(templates::of_64_bits()).chain(templates::of_cuda_alone());
    let mut several = 0;
    for template in all {
        // What finishes sums is not open to more.
        if matches!(&template, Template::Reduce(reducer) if reducer.finish.is_some()) {
            continue;
        }
        let Some(known) = template.written_beside() else { continue };
        let bindings = template.kernel().bindings;
        let mut written: Vec<usize> = (0..bindings.len()).filter(|&at| bindings[at].writable).collect();
        // Workgroups that count who of them is the last have memory for that behind all else.
        if matches!(&template, Template::Reduce(reducer) if reducer.joins) {
            written.pop();
        }
        assert!(written.pop().is_some(), "{template:?} has no result");
        assert_eq!(known.to_vec(), written, "{template:?}");
        several += usize::from(!written.is_empty());
    }
    assert!(several > 10, "norms, their gradients, and reductions of what others read");
}
