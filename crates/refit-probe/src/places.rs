//! Finds the places in a file that specifications name.

use refit_analysis::functions::Sources;
use refit_analysis::image::Tracepoint;
use refit_analysis::{FunctionId, Module};
use refit_sys::glob;

use crate::spec::What;

/// A place that a specification names, in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// Name of the place.
    pub name: String,
    /// The function that it belongs to.
    pub function: FunctionId,
    /// Address in the file of the instruction before which actions run.
    pub address: u64,
    /// Index of the static tracepoint of the file that it is, if it is one.
    pub tracepoint: Option<usize>,
}

/// Returns the places in a file that match `what`; empty if there are none.
pub fn find(module: &Module, what: &What) -> Vec<CodePlace> {
    let entry = |id: FunctionId, offset: u64| {
        let function = module.function(id);
        let name = function.name();
        let name = if offset == 0 { name } else { format!("{name}+{offset:#x}") };
        CodePlace { name, function: id, address: function.entry + offset, tracepoint: None }
    };
    match what {
        What::Functions(pattern) => {
            let ids = module.find(pattern).into_iter();
            // A stub only jumps to the function of that name.
            ids.filter(|&id| !module.function(id).sources.contains(Sources::STUB))
                .map(|id| entry(id, 0))
                .collect()
        }
        What::Behind(name, offset) => {
            module.find(name).into_iter().map(|id| entry(id, *offset)).collect()
        }
        What::Tracepoint { provider, name } => {
            let like = |wanted: &str, one: &str| glob::matches(wanted.as_bytes(), one.as_bytes());
            let all = module.image().tracepoints().iter().enumerate();
            let named = all.filter(|(_, one)| {
                let provided = provider.as_deref().is_none_or(|name| like(name, &one.provider));
                provided && like(name, &one.name)
            });
            let place = |(at, one): (usize, &Tracepoint)| {
                let function = module.function_at(one.address)?;
                let name = format!("{}:{}", one.provider, one.name);
                Some(CodePlace { name, function, address: one.address, tracepoint: Some(at) })
            };
            named.filter_map(place).collect()
        }
        What::At(address) => {
            let function = module.function_at(*address).into_iter();
            function.map(|id| entry(id, address - module.function(id).entry)).collect()
        }
    }
}
