//! The hierarchy of objects: the references that objects of one instance hold, followed both ways.

use std::collections::{BTreeMap, BTreeSet};

use refit_instance::wire::ObjectInfo;

/// The maximum depth of a drawing: compositions are shallow, and a circle must not be drawn for
/// ever.
const DEEPEST: usize = 8;

/// The number of users of an object that a drawing names one by one.
const NAMED: usize = 4;

/// The objects of one instance, and their calls of each other.
pub(crate) struct Hierarchy<'a> {
    objects: BTreeMap<u64, &'a ObjectInfo>,
    /// Callers by the object that they call.
    users: BTreeMap<u64, Vec<u64>>,
}

impl<'a> Hierarchy<'a> {
    pub(crate) fn new(objects: &'a [ObjectInfo]) -> Self {
        let mut users: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for object in objects {
            for import in &object.imports {
                users.entry(import.object).or_default().push(object.id);
            }
        }
        Hierarchy { objects: objects.iter().map(|object| (object.id, object)).collect(), users }
    }

    /// Returns all objects that stand on this one, without itself.
    pub(crate) fn on(&self, object: u64) -> BTreeSet<u64> {
        self.reached(object, &|id| self.users.get(&id).cloned().unwrap_or_default())
    }

    /// Returns all objects on which this one stands, without itself.
    pub(crate) fn under(&self, object: u64) -> BTreeSet<u64> {
        self.reached(object, &|id| {
            let object = self.objects.get(&id);
            object.map(|o| o.imports.iter().map(|i| i.object).collect()).unwrap_or_default()
        })
    }

    fn reached(&self, from: u64, next: &dyn Fn(u64) -> Vec<u64>) -> BTreeSet<u64> {
        let (mut reached, mut left) = (BTreeSet::new(), next(from));
        while let Some(id) = left.pop() {
            if id != from && reached.insert(id) {
                left.extend(next(id));
            }
        }
        reached
    }

    /// Returns the lines of a drawing: the object, below it the objects on which it stands, and in
    /// the last line those that stand on it.
    pub(crate) fn draw(&self, object: u64) -> Vec<String> {
        let mut lines = Vec::new();
        self.draw_below(object, "", "", "", 0, &mut lines);
        let users = self.users.get(&object).map(Vec::as_slice).unwrap_or_default();
        if !users.is_empty() {
            let named = users.iter().take(NAMED).filter_map(|id| self.objects.get(id));
            let mut text = named.map(|o| o.name.as_str()).collect::<Vec<_>>().join(", ");
            if users.len() > NAMED {
                text += &format!(" and {} more", users.len() - NAMED);
            }
            lines.push(format!("used by {text}"));
        }
        lines
    }

    fn draw_below(
        &self,
        object: u64,
        head: &str,
        port: &str,
        indent: &str,
        depth: usize,
        lines: &mut Vec<String>,
    ) {
        let Some(object) = self.objects.get(&object) else {
            lines.push(format!("{head}{port}(gone)"));
            return;
        };
        lines.push(format!("{head}{port}{}  {}", object.name, object.implementation));
        if depth == DEEPEST {
            return;
        }
        for (n, import) in object.imports.iter().enumerate() {
            let last = n + 1 == object.imports.len();
            let (head, more) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let (head, more) = (format!("{indent}{head}"), format!("{indent}{more}"));
            let port = format!("{} → ", import.port);
            self.draw_below(import.object, &head, &port, &more, depth + 1, lines);
        }
    }
}

#[cfg(test)]
mod tests {

    use refit_instance::wire::Import;

    use super::*;

    fn object(id: u64, name: &str, imports: &[(&str, u64)]) -> ObjectInfo {
        let import =
            |(port, object): &(&str, u64)| Import { port: (*port).into(), object: *object };
        ObjectInfo {
            id,
            name: name.into(),
            implementation: "plain".into(),
            imports: imports.iter().map(import).collect(),
            ..ObjectInfo::default()
        }
    }

    #[test]
    fn it_is_followed_both_ways_and_drawn() {
        let objects = [
            object(1, "fcm:/a", &[("fr", 2), ("pm", 3)]),
            object(2, "fr:/a", &[]),
            object(3, "pm:/", &[("disk", 5)]),
            object(4, "fcm:/b", &[("fr", 9), ("pm", 3)]),
            object(5, "disk:/", &[]),
        ];
        let hierarchy = Hierarchy::new(&objects);
        assert_eq!(hierarchy.on(5), [1, 3, 4].into());
        assert_eq!(hierarchy.under(1), [2, 3, 5].into());
        let drawn = "\
fcm:/a  plain
├─ fr → fr:/a  plain
└─ pm → pm:/  plain
   └─ disk → disk:/  plain";
        assert_eq!(hierarchy.draw(1).join("\n"), drawn);
        let drawn = "\
pm:/  plain
└─ disk → disk:/  plain
used by fcm:/a, fcm:/b";
        assert_eq!(hierarchy.draw(3).join("\n"), drawn);
        assert!(hierarchy.draw(4)[1].ends_with("fr → (gone)"));
    }

    #[test]
    fn a_circle_ends() {
        let objects = [object(1, "a", &[("b", 2)]), object(2, "b", &[("a", 1)])];
        let hierarchy = Hierarchy::new(&objects);
        assert_eq!(hierarchy.under(1), [2].into());
        assert_eq!(hierarchy.draw(1).len(), DEEPEST + 2);
    }
}
