//! Where the parameters of a function are when it is entered.
//!
//! The compiler says it for optimised code: the location of the parameter at the entry. Without
//! optimisation it names the place to which the function copies the parameter first, so the place
//! before that follows from the System V ABI (§3.2.3), by the types of all parameters.

use gimli::{AttributeValue, DW_AT_location, Operation};

use super::classes::Class;
use super::debug::Node;
use super::split::NoUnit;
use super::{TypeId, Types};
use crate::registers::{ARGUMENTS, from_dwarf};

/// Why a parameter that the function gets cannot be read.
const ELSEWHERE: &str = "it is in a vector register, or in several registers";
/// Bytes of the return address.
const RETURN: u64 = 8;

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Where it is when the function is entered.
    pub at: Whereabouts,
    /// Its type.
    pub of: TypeId,
}

/// Where a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// In a general register, by its number in machine code.
    Register(u8),
    /// In memory, this many bytes above the stack pointer.
    Stack(i32),
}

/// Why a parameter is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoParameter {
    /// There is no such function.
    #[error("the debug information does not describe the function")]
    NoFunction,
    /// The file that describes the function is missing.
    #[error(transparent)]
    NoUnit(#[from] NoUnit),
    /// The function has no such parameter.
    #[error("the function has no parameter of this name{}", .there.first().map_or(String::new(), |_| format!("; it has: {}", .there.join(", "))))]
    NoName {
        /// The names of its parameters.
        there: Vec<String>,
    },
    /// The place of the parameter is not known.
    #[error("{0}")]
    Nowhere(&'static str),
}

impl Types {
    /// Finds a parameter of the function that is entered at an address of the file.
    ///
    /// # Errors
    /// [`NoParameter`]: it is not known, or in no register and not on the stack.
    pub fn parameter(&self, entry: u64, name: &str) -> Result<Parameter, NoParameter> {
        let function = self.debug.function(entry)?.ok_or(NoParameter::NoFunction)?;
        let parameters = self.parameters(&function);
        let named: Vec<_> = parameters.iter().map(|one| self.debug.name(one)).collect();
        let Some(index) = named.iter().position(|one| one.as_deref() == Some(name)) else {
            return Err(NoParameter::NoName { there: named.into_iter().flatten().collect() });
        };
        let of = self.debug.type_of(&parameters[index]);
        let of: TypeId = of.ok_or(NoParameter::Nowhere("its type is not known"))?.into();
        let at = match self.place(&parameters[index], entry) {
            Place::At(at) => at,
            Place::Later => self.passed(&function, &parameters, index)?,
            Place::Elsewhere => return Err(NoParameter::Nowhere(ELSEWHERE)),
            Place::Gone => {
                return Err(NoParameter::Nowhere("the optimised function does not get it"));
            }
        };
        match at {
            Whereabouts::Register(_) if self.is_structure(of) => {
                Err(NoParameter::Nowhere("it is a structure in registers"))
            }
            at => Ok(Parameter { at, of }),
        }
    }

    fn parameters(&self, function: &Node) -> Vec<Node> {
        let mut function = function.clone();
        loop {
            let children = self.debug.children(&function).into_iter();
            let found: Vec<Node> = children
                .filter(|child| child.entry.tag() == gimli::DW_TAG_formal_parameter)
                .collect();
            // A copy of an inlined function may leave them to its origin.
            let origin = function.entry.attr_value(gimli::DW_AT_abstract_origin);
            let origin = origin.and_then(|origin| self.debug.target(&function, &origin));
            match origin.filter(|_| found.is_empty()).and_then(|at| self.debug.node(at)) {
                // An origin has none itself.
                Some(node)
                    if node.at != function.at && function.entry.has_attr(gimli::DW_AT_low_pc) =>
                {
                    function = node;
                }
                _ => return found,
            }
        }
    }

    /// Returns the place of a parameter at the entry, as the compiler says it.
    fn place(&self, parameter: &Node, entry: u64) -> Place {
        let Some(value) = parameter.entry.attr_value(DW_AT_location) else { return Place::Gone };
        if let Some(expression) = value.exprloc_value() {
            return match located(parameter, expression) {
                // The whole function may have it in a register only if it never changes it.
                Some(at @ Whereabouts::Register(_)) => Place::At(at),
                _ => Place::Later,
            };
        }
        let Ok(Some(mut list)) = parameter.dwarf().attr_locations(&parameter.unit, value) else {
            return Place::Gone;
        };
        while let Ok(Some(part)) = list.next() {
            if (part.range.begin..part.range.end).contains(&entry) {
                return located(parameter, part.data).map_or(Place::Elsewhere, Place::At);
            }
        }
        Place::Gone
    }

    /// Returns the place of a parameter by the rules of the ABI.
    fn passed(
        &self,
        function: &Node,
        parameters: &[Node],
        index: usize,
    ) -> Result<Whereabouts, NoParameter> {
        let unknown = || NoParameter::Nowhere("its place at the entry is not known");
        let is_c = self.is_c(function);
        let private = self.debug.attribute(function, gimli::DW_AT_calling_convention);
        if private.is_some_and(|(_, value)| {
            matches!(value, AttributeValue::CallingConvention(gimli::DW_CC_nocall))
        }) {
            return Err(NoParameter::Nowhere("the function is called in a way of its own"));
        }
        let (mut next, mut above) = (0_usize, RETURN);
        if let Some(result) = self.debug.type_of(function).map(TypeId::from)
            && self.is_structure(result)
        {
            let class = self.class(result).filter(|_| is_c).ok_or_else(unknown)?;
            // The caller passes the address of the room for it.
            next += usize::from(!matches!(class, Class::Registers(_)));
        }
        for (at, parameter) in parameters.iter().enumerate().take(index + 1) {
            let of: TypeId = self.debug.type_of(parameter).ok_or_else(unknown)?.into();
            if !is_c && !self.is_scalar(of) {
                return Err(unknown());
            }
            let class = self.class(of).ok_or_else(unknown)?;
            let (registers, bytes) = match class {
                Class::Registers(count) => (usize::from(count), 8 * u64::from(count)),
                Class::Address => (1, 8),
                Class::Memory(bytes) => (usize::MAX, bytes),
            };
            if registers <= ARGUMENTS.len().saturating_sub(next) {
                if at == index {
                    let register = ARGUMENTS.get(next).filter(|_| registers == 1);
                    let register = register.ok_or(NoParameter::Nowhere(ELSEWHERE))?;
                    return Ok(Whereabouts::Register(*register));
                }
                next += registers;
            } else {
                if at == index {
                    let above = i32::try_from(above).map_err(|_| unknown())?;
                    return Ok(Whereabouts::Stack(above));
                }
                above = above.checked_add(bytes).ok_or_else(unknown)?;
            }
        }
        Err(unknown())
    }

    /// Whether a function is in C or C++, which pass structures as the ABI says.
    fn is_c(&self, function: &Node) -> bool {
        let Ok(root) = function.unit.entry(function.unit.header.root_offset()) else {
            return false;
        };
        let Some(AttributeValue::Language(language)) = root.attr_value(gimli::DW_AT_language)
        else {
            return false;
        };
        matches!(
            language,
            gimli::DW_LANG_C89
                | gimli::DW_LANG_C
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17
                | gimli::DW_LANG_C_plus_plus
                | gimli::DW_LANG_C_plus_plus_03
                | gimli::DW_LANG_C_plus_plus_11
                | gimli::DW_LANG_C_plus_plus_14
                | gimli::DW_LANG_C_plus_plus_17
                | gimli::DW_LANG_C_plus_plus_20
        )
    }
}

/// The place of a parameter at the entry.
enum Place {
    /// There.
    At(Whereabouts),
    /// Where the ABI says: the compiler names the place to which it is copied.
    Later,
    /// In no general register, and not on the stack.
    Elsewhere,
    /// Nowhere: the function does not need it.
    Gone,
}

/// Returns the place that an expression names; `None` if it is no register and not on the stack.
fn located<R: gimli::Reader<Offset = usize>>(
    node: &Node,
    expression: gimli::Expression<R>,
) -> Option<Whereabouts> {
    let mut operations = expression.operations(node.unit.encoding());
    let (first, second) = (operations.next().ok()??, operations.next().ok()?);
    match first {
        Operation::Register { register } if second.is_none() => {
            from_dwarf(register.0).map(Whereabouts::Register)
        }
        // Above the frame, which begins above the return address.
        Operation::FrameOffset { offset } if second.is_none() && offset >= 0 => {
            let above = offset.checked_add(RETURN.cast_signed())?;
            i32::try_from(above).ok().map(Whereabouts::Stack)
        }
        _ => None,
    }
}
