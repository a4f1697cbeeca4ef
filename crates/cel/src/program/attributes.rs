//! Variables, selections and indexes.

use super::CelLazyObject;
use super::eval::{Evaluator, Slot, is_final};
use super::plan::{Attribute, AttributeRoot, Code, CodeId, Qualifier, QualifierKey};
use crate::document::{CelJson, JsonObject};
use crate::value::{
    CelError, CelMap, CelResult, CelStr, CelValue, LOOKUP, double_to_int, work_of_bytes,
};

impl<'a> Evaluator<'a, '_> {
    /// The value of an attribute, with the cost of referring to it.
    ///
    /// Not inlined, and with a single result, which is made where the caller wants it: copying results is a good part of
    /// the time of an evaluation.
    #[inline(never)]
    pub(super) fn attribute(&mut self, attribute: &'a Attribute) -> CelResult<'a> {
        let mut value = self.resolve(attribute);
        if is_final(&value) {
            return value;
        }
        if let Err(error) = self.refer(attribute) {
            value = Err(error);
        } else if attribute.test_only
            && let Ok(CelValue::Optional(found)) = &value
        {
            value = Ok(CelValue::Bool(found.is_some()));
        }
        value
    }

    /// Charges the reference to an attribute.
    #[inline]
    fn refer(&mut self, attribute: &Attribute) -> Result<(), CelError> {
        let conditional = matches!(attribute.root, AttributeRoot::Conditional { .. });
        match (conditional, attribute.test_only) {
            (false, false) => self.charge(1),
            // A presence test costs one less than a selection. Referring to a conditional is free, so one is refunded.
            (true, true) => {
                self.refund_one();
                Ok(())
            }
            (false, true) | (true, false) => Ok(()),
        }
    }

    /// The value of an index or of a branch of a conditional. Referring to an attribute costs nothing there.
    fn part(&mut self, id: CodeId) -> CelResult<'a> {
        let program = self.program;
        match &program.code[id.index()] {
            Code::Attribute(attribute) => self.resolve(attribute),
            Code::Local(number) => self.local(*number).and_then(unnest),
            _ => self.eval(id),
        }
    }

    /// The value of a comprehension's variable, with the cost of referring to it.
    #[inline(never)]
    pub(super) fn local_reference(&mut self, number: u32) -> CelResult<'a> {
        let mut value = self.local(number).and_then(unnest);
        if !is_final(&value)
            && let Err(error) = self.charge(1)
        {
            value = Err(error);
        }
        value
    }

    fn resolve(&mut self, attribute: &'a Attribute) -> CelResult<'a> {
        if !attribute.qualifiers.is_empty()
            && let Some(object) = self.document(&attribute.root)
        {
            return self.members(object, &attribute.qualifiers, attribute.test_only);
        }
        let root = match &attribute.root {
            AttributeRoot::Variable(number) if self.bindings.is_lazy(*number) => {
                return self.lazy_attribute(attribute);
            }
            AttributeRoot::Variable(number) => self.variable(*number),
            AttributeRoot::Local(number) => self.local(*number),
            AttributeRoot::Code(id) => self.eval(*id),
            AttributeRoot::Conditional { condition, yes, no } => match self.eval(*condition)? {
                CelValue::Bool(true) => self.part(*yes),
                CelValue::Bool(false) => self.part(*no),
                _ => Err(CelError::no_such_overload()),
            },
        }?;
        if attribute.qualifiers.is_empty() {
            return unnest(root);
        }
        self.qualify_all(root, &attribute.qualifiers, attribute.test_only)
    }

    /// The JSON object that a variable is, if it is one.
    fn document(&self, root: &AttributeRoot) -> Option<&'a JsonObject<'a>> {
        let value = match root {
            AttributeRoot::Variable(number) if !self.bindings.is_lazy(*number) => {
                self.bindings.get(*number)?
            }
            AttributeRoot::Local(number) => match &self.slots[*number as usize] {
                Slot::Set(Ok(value)) => value,
                _ => return None,
            },
            _ => return None,
        };
        match value {
            CelValue::Map(map) => map.as_json(),
            _ => None,
        }
    }

    /// As [`qualify_rest`](Self::qualify_rest), in a document. As long as the qualifiers are fields of objects, no values
    /// are made of these objects.
    fn members(
        &mut self,
        mut object: &'a JsonObject<'a>,
        qualifiers: &'a [Qualifier],
        test_only: bool,
    ) -> CelResult<'a> {
        let mut rest = qualifiers;
        while let Some((
            Qualifier {
                key: QualifierKey::Field(name),
                optional: false,
            },
            others,
        )) = rest.split_first()
        {
            self.work.burn(work_of_bytes(name.len()))?;
            let found = object.get(name);
            self.charge(1)?;
            if test_only && others.is_empty() {
                return Ok(CelValue::Bool(found.is_some()));
            }
            rest = others;
            match found {
                Some(CelJson::Object(inner)) => object = inner,
                Some(other) if rest.is_empty() => return Ok(CelValue::json(other)),
                Some(other) => {
                    return self.qualify_rest(CelValue::json(other), false, rest, test_only);
                }
                None => {
                    let key = CelValue::String(CelStr::Borrowed(name));
                    return Err(self.work.error(&[("no such key: ", &key)], ""));
                }
            }
        }
        let value = CelValue::Map(CelMap::json(object));
        if rest.is_empty() {
            return Ok(value);
        }
        self.qualify_rest(value, false, rest, test_only)
    }

    /// A field of the variable that is computed on demand, or all of them.
    #[inline(never)]
    fn lazy_attribute(&mut self, attribute: &'a Attribute) -> CelResult<'a> {
        let Some(lazy) = self.lazy else {
            return Err(CelError::new("no such attribute(s)"));
        };
        let Some((first, others)) = attribute.qualifiers.split_first() else {
            return self.all_fields(lazy);
        };
        let QualifierKey::Field(name) = &first.key else {
            let fields = self.all_fields(lazy)?;
            return self.qualify_all(fields, &attribute.qualifiers, attribute.test_only);
        };
        let test = attribute.test_only && others.is_empty();
        let found = lazy.field(name).transpose();
        let key = CelValue::String(CelStr::Borrowed(name));
        let found = self.settle(found, Ok(key), false, first.optional, test)?;
        match found {
            None => Ok(CelValue::Optional(None)),
            Some(value) if others.is_empty() && first.optional => CelValue::some(value),
            Some(value) if others.is_empty() => Ok(value),
            Some(value) if first.optional => {
                self.qualify_all(CelValue::some(value)?, others, attribute.test_only)
            }
            Some(value) => self.qualify_rest(value, false, others, attribute.test_only),
        }
    }

    /// All fields of the variable that is computed on demand, as a map.
    fn all_fields(&mut self, lazy: &dyn CelLazyObject<'a>) -> CelResult<'a> {
        let mut entries = Vec::new();
        for name in lazy.names() {
            self.work.burn(4 * LOOKUP)?;
            if let Some(value) = lazy.field(name) {
                entries.push((CelValue::from(name), value?));
            }
        }
        CelMap::new(entries).map(CelValue::Map)
    }

    fn variable(&self, number: u32) -> CelResult<'a> {
        if let Some(value) = self.bindings.get(number) {
            return Ok(value.clone());
        }
        let name = &self.program.variables[number as usize];
        Err(CelError::new(format!("no such attribute(s): {name}")))
    }

    /// The value of a comprehension's variable; accumulators are computed when they are first used.
    pub(super) fn local(&mut self, number: u32) -> CelResult<'a> {
        let at = number as usize;
        if let Slot::Set(value) = &self.slots[at] {
            return value.clone();
        }
        let program = self.program;
        let init = program.inits[at];
        if let Some(init) = init
            && let Code::Const(CelValue::Bool(flag)) = program.code[init.index()]
        {
            self.work.burn(1)?;
            self.slots[at] = Slot::Set(Ok(CelValue::Bool(flag)));
            return Ok(CelValue::Bool(flag));
        }
        let value = match init {
            Some(init) => self.eval(init),
            None => Err(CelError::new("no such attribute(s)")),
        };
        self.slots[at] = Slot::Set(value.clone());
        value
    }

    #[inline(never)]
    fn qualify_all(
        &mut self,
        root: CelValue<'a>,
        qualifiers: &'a [Qualifier],
        test_only: bool,
    ) -> CelResult<'a> {
        match root {
            CelValue::Optional(None) => Ok(CelValue::Optional(None)),
            CelValue::Optional(Some(of)) => {
                self.qualify_rest(of.value().clone(), true, qualifiers, test_only)
            }
            other => self.qualify_rest(other, false, qualifiers, test_only),
        }
    }

    fn qualify_rest(
        &mut self,
        mut value: CelValue<'a>,
        mut optional: bool,
        qualifiers: &'a [Qualifier],
        test_only: bool,
    ) -> CelResult<'a> {
        let last = qualifiers.len().saturating_sub(1);
        for (at, qualifier) in qualifiers.iter().enumerate() {
            optional |= qualifier.optional;
            let test = test_only && at == last;
            match self.qualify(&value, qualifier, optional, test)? {
                Some(found) => value = found,
                None => return Ok(CelValue::Optional(None)),
            }
        }
        if optional {
            return CelValue::some(value);
        }
        Ok(value)
    }

    /// Applies one qualifier: a field, a key or an index. `None` if it is optional and absent.
    fn qualify(
        &mut self,
        value: &CelValue<'a>,
        qualifier: &'a Qualifier,
        optional: bool,
        test: bool,
    ) -> Result<Option<CelValue<'a>>, CelError> {
        let (found, key) = match &qualifier.key {
            QualifierKey::Field(name) => {
                self.work.burn(work_of_bytes(name.len()))?;
                let found = match value {
                    CelValue::Map(map) => Ok(map.get_str(name)),
                    _ => find(value, &CelValue::String(CelStr::Borrowed(name))),
                };
                (found, Ok(CelValue::String(CelStr::Borrowed(name))))
            }
            QualifierKey::Const(key) => (find(value, key), Ok(key.borrowed())),
            QualifierKey::Code(id) => {
                let key = self.key(*id);
                let reading = key.as_ref().map_or(0, CelValue::reading_work);
                self.work.burn(LOOKUP + reading)?;
                match &key {
                    Ok(of) => (find(value, of), key),
                    Err(error) if error.is_final() => return Err(error.clone()),
                    Err(_) => (Ok(None), key),
                }
            }
        };
        let list = matches!(value, CelValue::List(_));
        self.settle(found, key, list, optional, test)
    }

    /// The key or index that `code` gives.
    fn key(&mut self, code: CodeId) -> CelResult<'a> {
        let program = self.program;
        if let Code::Attribute(attribute) = &program.code[code.index()]
            && attribute.qualifiers.is_empty()
            && let AttributeRoot::Conditional { condition, yes, no } = &attribute.root
        {
            // What the error says depends on the branch.
            return match self.eval(*condition)? {
                CelValue::Bool(true) => self.key(*yes),
                CelValue::Bool(false) => self.key(*no),
                _ => Err(CelError::no_such_overload()),
            };
        }
        let key = self.part(code)?;
        self.check_key(key, code)
    }

    /// Refuses values that cannot be keys or indexes. The error has the Go type of what `code` is.
    fn check_key(&self, key: CelValue<'a>, code: CodeId) -> CelResult<'a> {
        let of = match &key {
            CelValue::String(_)
            | CelValue::Int(_)
            | CelValue::Uint(_)
            | CelValue::Bool(_)
            | CelValue::Double(_) => return Ok(key),
            CelValue::Map(_) if self.is_lazy_object(code) => "*lazy.MapValue",
            CelValue::List(_) | CelValue::Map(_) if !self.is_of_variable(code) => {
                go_type_of_container(&key)
            }
            CelValue::Null if self.is_of_variable(code) => "<nil>",
            other => go_type(other),
        };
        Err(CelError::new(format!("invalid qualifier type: {of}")))
    }

    /// Whether a value is that of a variable or a part of it, which the original leaves as the host has it.
    fn is_of_variable(&self, code: CodeId) -> bool {
        let Code::Attribute(attribute) = &self.program.code[code.index()] else {
            return false;
        };
        match &attribute.root {
            AttributeRoot::Variable(number) => !self.bindings.is_lazy(*number),
            AttributeRoot::Conditional { yes, no, .. } => {
                self.is_of_variable(*yes) && self.is_of_variable(*no)
            }
            AttributeRoot::Local(_) | AttributeRoot::Code(_) => false,
        }
    }

    /// Whether a value is all of the lazy variable.
    fn is_lazy_object(&self, code: CodeId) -> bool {
        let Code::Attribute(attribute) = &self.program.code[code.index()] else {
            return false;
        };
        let AttributeRoot::Variable(number) = &attribute.root else {
            return false;
        };
        attribute.qualifiers.is_empty() && self.bindings.is_lazy(*number)
    }

    /// Charges one qualifier, and turns an absent value into the result of a test, into `None` or into an error.
    fn settle(
        &mut self,
        found: Result<Option<CelValue<'a>>, CelError>,
        key: CelResult<'a>,
        list: bool,
        optional: bool,
        test: bool,
    ) -> Result<Option<CelValue<'a>>, CelError> {
        if let Err(error) = &found
            && error.is_final()
        {
            return found;
        }
        // An optional qualifier that is absent or fails costs nothing.
        if !optional || matches!(found, Ok(Some(_))) {
            self.charge(1)?;
        }
        let key = key?;
        match found? {
            found if test && !optional => Ok(Some(CelValue::Bool(found.is_some()))),
            Some(found) => Ok(Some(found)),
            None if optional => Ok(None),
            None if list => Err(self.work.error(&[("index out of bounds: ", &key)], "")),
            None => Err(self.work.error(&[("no such key: ", &key)], "")),
        }
    }
}

/// The value as it is after it passed through a variable or a conditional. The original converts the content of an
/// optional value there, to a value of Go and back: an optional value inside is flattened (if the innermost is absent,
/// the result holds null), a type becomes its name, and what it cannot convert back is an error.
#[inline]
fn unnest(value: CelValue<'_>) -> CelResult<'_> {
    if matches!(value, CelValue::Optional(Some(_))) {
        return unnest_optional(value);
    }
    Ok(value)
}

fn unnest_optional(value: CelValue<'_>) -> CelResult<'_> {
    let CelValue::Optional(Some(of)) = &value else {
        return Ok(value);
    };
    let mut inner = of.value();
    let nests = matches!(inner, CelValue::Optional(_));
    loop {
        match inner {
            CelValue::Optional(Some(of)) => inner = of.value(),
            CelValue::Optional(None) => return CelValue::some(CelValue::Null),
            CelValue::Type(of) => return CelValue::some(of.runtime_name().to_owned().into()),
            CelValue::Opaque(of) => {
                if let Some(error) = of.conversion_error() {
                    return Err(CelError::new(error));
                }
                break;
            }
            _ => break,
        }
    }
    if nests {
        return CelValue::some(inner.clone());
    }
    Ok(value)
}

/// The value at `key` in a map or list; `None` if there is none.
fn find<'a>(value: &CelValue<'a>, key: &CelValue<'_>) -> Result<Option<CelValue<'a>>, CelError> {
    match value {
        CelValue::Map(map) => Ok(map.get(key)),
        CelValue::List(list) => {
            let index = index_of(key)?;
            Ok(usize::try_from(index)
                .ok()
                .and_then(|index| list.get(index)))
        }
        _ => Ok(None),
    }
}

/// The list index that `key` stands for.
fn index_of(key: &CelValue<'_>) -> Result<i64, CelError> {
    let unsupported = || CelError::new(format!("unsupported index value {key} in list"));
    match key {
        CelValue::Int(index) => Ok(*index),
        CelValue::Uint(index) => i64::try_from(*index).map_err(|_| unsupported()),
        CelValue::Double(index) => double_to_int(*index).ok_or_else(unsupported),
        other => {
            let message = format!("unsupported index type '{}' in list", other.type_name());
            Err(CelError::new(message))
        }
    }
}

/// The name of the original's Go type of a map, or else of a list, that is not as the host has it.
fn go_type_of_container(value: &CelValue<'_>) -> &'static str {
    match value {
        CelValue::Map(_) => "*types.baseMap",
        CelValue::List(list) if list.is_joined() => "*types.concatList",
        _ => "*types.baseList",
    }
}

/// The name of the original's Go type, which some of its messages show.
pub(super) fn go_type(value: &CelValue<'_>) -> &'static str {
    match value {
        CelValue::Null => "types.Null",
        CelValue::Bool(_) => "types.Bool",
        CelValue::Int(_) => "types.Int",
        CelValue::Uint(_) => "types.Uint",
        CelValue::Double(_) => "types.Double",
        CelValue::String(_) => "types.String",
        CelValue::Bytes(_) => "types.Bytes",
        CelValue::Duration(_) => "types.Duration",
        CelValue::Timestamp(_) => "types.Timestamp",
        CelValue::List(list) if list.as_json().is_some() => "[]interface {}",
        CelValue::Map(map) if map.as_json().is_some() => "map[string]interface {}",
        CelValue::List(_) | CelValue::Map(_) => go_type_of_container(value),
        CelValue::Type(_) => "*types.Type",
        CelValue::Optional(_) => "*types.Optional",
        CelValue::Opaque(of) => of.go_type(),
    }
}
