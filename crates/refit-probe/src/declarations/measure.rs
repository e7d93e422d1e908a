//! The sizes of types that a script declares or C has, and the places of members in them: `sizeof`
//! and `offsetof`.

use super::declared::{Declarations, Type};
use crate::type_name::TypeName;

/// The words before the brackets.
pub(super) const WORDS: [&str; 2] = ["sizeof", "offsetof"];

impl Declarations {
    /// Returns the number that `word(inner)` is; `None` if the script does not say it.
    pub(super) fn measure(&self, word: &str, inner: &str) -> Option<i64> {
        let (name, path) = match word {
            "sizeof" => (inner, None),
            _ => inner.rsplit_once(',').map(|(name, path)| (name, Some(path)))?,
        };
        let mut of = self.of_name(&TypeName::parse(name)?)?;
        let Some(path) = path else {
            return i64::try_from(self.size(&of)?).ok();
        };
        let mut offset = 0_u64;
        for name in path.split('.') {
            let Type::Structure(index) = of else { return None };
            let field = self.member(index, name.trim()).filter(|field| field.bits.is_none())?;
            offset = offset.checked_add(field.offset)?;
            of = field.of;
        }
        i64::try_from(offset).ok()
    }

    /// Returns the type with a name.
    fn of_name(&self, name: &TypeName) -> Option<Type> {
        let number = |(bytes, signed)| Type::Number { bytes, signed };
        match name.pointers {
            0 => name.number().map(number).or_else(|| self.named(name.kind, &name.name)),
            _ => Some(Type::Pointer(Box::new(Type::Nothing))),
        }
    }
}
