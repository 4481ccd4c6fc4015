//! How a module prints: its structure, one line a field.

use alloc::{
    borrow::ToOwned,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::any::type_name;
use core::fmt::Display;

/// What the derive gives: the fields of a module and its number of parameters.
pub trait ModuleDisplayDefault {
    /// All fields, added to `content`.
    fn content(&self, content: Content) -> Option<Content>;

    /// Number of parameters to print; 0 prints none.
    fn num_params(&self) -> usize {
        0
    }
}

/// How a module prints. The methods' defaults are right for most; `#[module(custom_display)]` allows others.
pub trait ModuleDisplay: ModuleDisplayDefault {
    /// The module as text, inside of what has the settings `passed_settings`.
    fn format(&self, passed_settings: DisplaySettings) -> String {
        let settings = passed_settings.under(self.custom_settings());
        let inner = settings.clone().level_up();
        let custom =
            if inner.show_all_attributes() { None } else { self.custom_content(Content::new(inner.clone())) };
        let content = custom.or_else(|| self.content(Content::new(inner)));
        print(content, type_name::<Self>(), &settings, &|| self.num_params())
    }

    /// Settings for this module and what it holds; `None` takes those of the container.
    fn custom_settings(&self) -> Option<DisplaySettings> {
        None
    }

    /// What to print instead of all fields; `None` prints all fields.
    fn custom_content(&self, _content: Content) -> Option<Content> {
        None
    }
}

/// Prints the content of a module of a type. Not generic: it is compiled once, not once a module.
fn print(
    content: Option<Content>,
    type_name: &str,
    settings: &DisplaySettings,
    num_params: &dyn Fn() -> usize,
) -> String {
    let type_name = without_path(type_name);
    let Some(content) = content else { return type_name.to_owned() };
    if let Some(item) = content.single_item {
        return item;
    }
    let name = content.top_level_type.unwrap_or_else(|| type_name.to_owned());
    if content.attributes.is_empty() {
        return name;
    }
    let mut lines: Vec<_> =
        content.attributes.iter().map(|Attribute { name, value, .. }| format!("{name}: {value}")).collect();
    let params = if settings.show_num_parameters() { num_params() } else { 0 };
    if params > 0 {
        lines.push(format!("params: {params}"));
    }
    if !settings.new_line_after_attribute() {
        return format!("{name} {{{}}}", lines.join(", "));
    }
    let indent = " ".repeat(settings.level * settings.indentation_size());
    let close = " ".repeat((settings.level - 1) * settings.indentation_size());
    let lines: String = lines.into_iter().map(|line| format!("{indent}{line}\n")).collect();
    format!("{name} {{\n{lines}{close}}}")
}

/// How modules print.
#[derive(Clone, Debug)]
pub struct DisplaySettings {
    show_param_id: Option<bool>,
    show_all_attributes: Option<bool>,
    show_num_parameters: Option<bool>,
    new_line_after_attribute: Option<bool>,
    indentation_size: Option<usize>,
    level: usize,
}

impl Default for DisplaySettings {
    fn default() -> Self {
        Self {
            show_param_id: None,
            show_all_attributes: None,
            show_num_parameters: None,
            new_line_after_attribute: None,
            indentation_size: None,
            level: 1,
        }
    }
}

impl DisplaySettings {
    /// Settings that leave everything to the container, or to the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the id of each parameter is shown; by default it is not.
    #[must_use]
    pub fn with_show_param_id(mut self, flag: bool) -> Self {
        self.show_param_id = Some(flag);
        self
    }

    /// Whether all fields are shown, even where a module chooses some; by default they are not.
    #[must_use]
    pub fn with_show_all_attributes(mut self, flag: bool) -> Self {
        self.show_all_attributes = Some(flag);
        self
    }

    /// Whether the number of parameters is shown; by default it is.
    #[must_use]
    pub fn with_show_num_parameters(mut self, flag: bool) -> Self {
        self.show_num_parameters = Some(flag);
        self
    }

    /// Whether each field has its own line; by default it has.
    #[must_use]
    pub fn with_new_line_after_attribute(mut self, flag: bool) -> Self {
        self.new_line_after_attribute = Some(flag);
        self
    }

    /// By how many spaces each level is indented; 2 by default.
    #[must_use]
    pub fn with_indentation_size(mut self, size: usize) -> Self {
        self.indentation_size = Some(size);
        self
    }

    /// These settings, overruled by what `top` sets, at the level of `top`.
    #[must_use]
    pub fn inherit(self, top: Self) -> Self {
        Self {
            show_param_id: top.show_param_id.or(self.show_param_id),
            show_all_attributes: top.show_all_attributes.or(self.show_all_attributes),
            show_num_parameters: top.show_num_parameters.or(self.show_num_parameters),
            new_line_after_attribute: top.new_line_after_attribute.or(self.new_line_after_attribute),
            indentation_size: top.indentation_size.or(self.indentation_size),
            level: top.level,
        }
    }

    /// These settings for a module that may have some of its own.
    fn under(self, own: Option<Self>) -> Self {
        match own {
            Some(own) => own.inherit(self),
            None => self,
        }
    }

    /// These settings in `Some`.
    pub fn optional(self) -> Option<Self> {
        Some(self)
    }

    /// These settings one level deeper.
    #[must_use]
    pub fn level_up(mut self) -> Self {
        self.level += 1;
        self
    }

    /// See [`DisplaySettings::with_show_param_id`].
    pub fn show_param_id(&self) -> bool {
        self.show_param_id.unwrap_or(false)
    }

    /// See [`DisplaySettings::with_show_all_attributes`].
    pub fn show_all_attributes(&self) -> bool {
        self.show_all_attributes.unwrap_or(false)
    }

    /// See [`DisplaySettings::with_show_num_parameters`].
    pub fn show_num_parameters(&self) -> bool {
        self.show_num_parameters.unwrap_or(true)
    }

    /// See [`DisplaySettings::with_new_line_after_attribute`].
    pub fn new_line_after_attribute(&self) -> bool {
        self.new_line_after_attribute.unwrap_or(true)
    }

    /// See [`DisplaySettings::with_indentation_size`].
    pub fn indentation_size(&self) -> usize {
        self.indentation_size.unwrap_or(2)
    }
}

/// What is printed of a module: named fields, or one text.
#[derive(Clone, Debug)]
pub struct Content {
    /// The fields.
    pub attributes: Vec<Attribute>,
    /// The text, where there are no fields.
    pub single_item: Option<String>,
    /// The settings for what the module holds.
    pub display_settings: DisplaySettings,
    /// The name to print instead of the type's.
    pub top_level_type: Option<String>,
}

impl Content {
    /// Nothing yet.
    pub fn new(display_settings: DisplaySettings) -> Self {
        Self { attributes: Vec::new(), single_item: None, display_settings, top_level_type: None }
    }

    /// Adds a field.
    ///
    /// # Panics
    /// When there is a single text.
    #[must_use]
    pub fn add<T: ModuleDisplay + ?Sized>(self, name: &str, value: &T) -> Self {
        let value = value.format(self.display_settings.clone());
        self.push(name, value, type_name::<T>())
    }

    fn push(mut self, name: &str, value: String, ty: &str) -> Self {
        assert!(self.single_item.is_none(), "{name} cannot be added: the content is a single item");
        self.attributes.push(Attribute { name: name.to_owned(), value, ty: ty.to_owned() });
        self
    }

    /// Makes the display of one value the text.
    ///
    /// # Panics
    /// When there are fields.
    #[must_use]
    pub fn add_single<T: ModuleDisplay + ?Sized>(self, value: &T) -> Self {
        let text = value.format(self.display_settings.clone());
        self.set_single(text)
    }

    /// Makes one value, as it formats itself, the text.
    ///
    /// # Panics
    /// When there are fields.
    #[must_use]
    pub fn add_formatted<T: Display + ?Sized>(self, value: &T) -> Self {
        self.set_single(value.to_string())
    }

    fn set_single(mut self, text: String) -> Self {
        assert!(self.attributes.is_empty(), "a single item cannot be added: the content has fields");
        self.single_item = Some(text);
        self
    }

    /// This content, if there is any.
    pub fn optional(self) -> Option<Self> {
        let empty = self.attributes.is_empty() && self.single_item.is_none() && self.top_level_type.is_none();
        (!empty).then_some(self)
    }

    /// Sets the name to print instead of the type's.
    #[must_use]
    pub fn set_top_level_type(mut self, ty: &str) -> Self {
        self.top_level_type = Some(ty.to_owned());
        self
    }
}

/// A field that is printed.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Its type.
    pub ty: String,
}

/// The name of a type without its path and its parameters.
fn without_path(full: &str) -> &str {
    let path = full.split_once('<').map_or(full, |(path, _)| path);
    path.rsplit_once("::").map_or(path, |(_, name)| name)
}
