//! How layers print: their sizes on one line, as in Burn.

/// Implements `ModuleDisplay` for a layer from a list of `name => expression` over `$layer`.
macro_rules! layer_display {
    ($ty:ident $(<$backend:ident>)?, |$layer:ident| { $($name:literal => $value:expr),* $(,)? }) => {
        impl $(<$backend: $crate::tensor::backend::Backend>)? $crate::module::ModuleDisplay for $ty $(<$backend>)? {
            fn custom_settings(&self) -> Option<$crate::module::DisplaySettings> {
                $crate::module::DisplaySettings::new().with_new_line_after_attribute(false).optional()
            }

            fn custom_content(&self, content: $crate::module::Content) -> Option<$crate::module::Content> {
                let $layer = self;
                content$(.add($name, &$value))*.optional()
            }
        }
    };
}

pub(super) use layer_display;
