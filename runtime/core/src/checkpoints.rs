//! What generated models declare with [`from_checkpoints!`](crate::from_checkpoints) or
//! [`no_checkpoints!`](crate::no_checkpoints): the ways to load a checkpoint of the original network. Generated source is
//! the same whatever features the runtime has, so these macros know them.

/// Declares, in the `impl<B: Backend>` block of a generated model, `from_pytorch` and `from_safetensors`, each when the
/// runtime has the feature of that name. The first argument makes the model whose parameters are then loaded, given the
/// device; where it takes a record besides, for what no checkpoint holds, that is the second.
///
/// ```ignore
/// impl<B: Backend> Model<B> {
///     kiln::from_checkpoints!(Self::new);
/// }
/// ```
#[macro_export]
macro_rules! from_checkpoints {
    ($start:path $(, $record:expr)?) => {
        $crate::__from_pytorch!(|args, device| {
            $crate::weights::load_weights($start($($record,)? device), args, device)
        });
        $crate::__from_safetensors!(|args, device| {
            $crate::weights::load_weights($start($($record,)? device), args, device)
        });
    };
}

/// Like [`from_checkpoints!`](crate::from_checkpoints), for a model that cannot take them: the methods yield an error that
/// says why.
#[macro_export]
macro_rules! no_checkpoints {
    ($reason:expr) => {
        $crate::__from_pytorch!(|_args, _device| {
            Err($crate::weights::ImportError::Rewritten($reason.into()))
        });
        $crate::__from_safetensors!(|_args, _device| {
            Err($crate::weights::ImportError::Rewritten($reason.into()))
        });
    };
}

/// Declares a method that loads a checkpoint; what it reads comes as the first lines of its docs.
#[doc(hidden)]
#[macro_export]
macro_rules! __from_checkpoint {
    ($(#[$reads:meta])* $name:ident, |$args:ident, $device:ident| $load:expr) => {
        $(#[$reads])*
        /// What was folded when the model was generated is folded again; constants of the graph come from the model's
        /// record.
        ///
        /// # Errors
        /// When the file cannot be read or is not this network's; the error lists everything that does not fit.
        ///
        /// # Panics
        /// When constants of the graph are needed and the model's record cannot be read.
        pub fn $name(
            $args: impl Into<$crate::weights::LoadArgs>,
            $device: &B::Device,
        ) -> Result<Self, $crate::weights::ImportError> {
            $load
        }
    };
}

/// Declares `from_pytorch`.
#[doc(hidden)]
#[macro_export]
#[cfg(feature = "pytorch")]
macro_rules! __from_pytorch {
    ($($load:tt)*) => {
        $crate::__from_checkpoint! {
            /// Loads the parameters from a checkpoint of the original network: a file of PyTorch's (`.pt`, `.pth`, `.bin`),
            /// or `LoadArgs` that name one.
            from_pytorch, $($load)*
        }
    };
}

/// Declares nothing: the runtime reads no files of PyTorch's.
#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "pytorch"))]
macro_rules! __from_pytorch {
    ($($load:tt)*) => {};
}

/// Declares `from_safetensors`.
#[doc(hidden)]
#[macro_export]
#[cfg(feature = "safetensors")]
macro_rules! __from_safetensors {
    ($($load:tt)*) => {
        $crate::__from_checkpoint! {
            /// Loads the parameters from a checkpoint of the original network: Safetensors, alone or in shards, or
            /// `LoadArgs` that name it.
            from_safetensors, $($load)*
        }
    };
}

/// Declares nothing: the runtime reads no Safetensors of others.
#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "safetensors"))]
macro_rules! __from_safetensors {
    ($($load:tt)*) => {};
}
