//! Finds a knob by its name.

use refit_analysis::{FunctionId, Module};

use crate::find::in_function;
use crate::knob::Knob;
use crate::name::Name;

/// Maximum number of similar names that are told.
const NEAR: usize = 4;

/// Why no knob has a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotFound {
    /// There is no such function.
    #[error("the file has no function {function}{}", similar(.near))]
    Function {
        /// The name.
        function: String,
        /// Names that resemble it.
        near: Vec<String>,
    },
    /// The function has no constant there.
    #[error("no constant that refit knows the use of is at {wanted}{}", similar(.near))]
    Constant {
        /// The name or address.
        wanted: String,
        /// Names of knobs in the same function.
        near: Vec<String>,
    },
    /// Several functions have the name, and a constant there.
    #[error("several functions are called {function}; name an address: {}", .addresses.join(", "))]
    Several {
        /// The name.
        function: String,
        /// Addresses of the constants.
        addresses: Vec<String>,
    },
}

fn similar(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; there are {}", near.join(", ")) }
}

/// Finds a knob; an address is one of the file.
///
/// # Errors
/// [`NotFound`].
pub fn locate(module: &Module, name: &Name) -> Result<Knob, NotFound> {
    let functions = match name {
        Name::Address(address) => module.function_at(*address).into_iter().collect(),
        Name::Offset { function, .. } => called(module, function),
    };
    if let (Name::Offset { function, .. }, true) = (name, functions.is_empty()) {
        let near = module.near(function, NEAR);
        return Err(NotFound::Function { function: function.clone(), near });
    }
    let (mut found, mut near) = (Vec::new(), Vec::new());
    for id in functions {
        let entry = module.function(id).entry;
        for knob in in_function(module, id) {
            let (address, usage) = match name {
                Name::Address(address) => (*address, None),
                Name::Offset { offset, usage, .. } => {
                    (entry.wrapping_add_signed(*offset), usage.as_ref())
                }
            };
            let has = knob.immediates.iter().any(|one| one.instruction == address);
            if has && usage.is_none_or(|usage| *usage == knob.usage.word()) {
                found.push(knob);
            } else {
                near.push(knob);
            }
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            near.sort_by_key(|knob| std::cmp::Reverse(knob.score));
            let near = near.into_iter().take(NEAR).map(|knob| knob.name).collect();
            Err(NotFound::Constant { wanted: name.to_string(), near })
        }
        _ => {
            let addresses = found.iter().map(|knob| format!("{:#x}", knob.address())).collect();
            Err(NotFound::Several { function: found[0].name.clone(), addresses })
        }
    }
}

fn called(module: &Module, name: &str) -> Vec<FunctionId> {
    let all = module.functions().iter().enumerate();
    let has = |(_, function): &(usize, &refit_analysis::Function)| {
        function.names.iter().any(|one| &**one == name)
            || (function.names.is_empty() && function.name() == name)
    };
    all.filter(has).map(|(index, _)| FunctionId(index as u32)).collect()
}
