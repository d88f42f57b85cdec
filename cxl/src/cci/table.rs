//! Command tables of components: one row for each command.
//!
//! [`command_table`](crate::command_table), inside an `impl`, expands to the list of [`Command`](super::Command)s
//! and the function that carries them out.
//!
//! Source: docs/spec/wire-formats.md §4.

/// Makes a component's list of commands and the function that carries them out, from a row for each command.
///
/// A row has the permitted senders (bits of [`who`](crate::cci::who)), the effects as the name of a function that
/// makes a [`Command`](crate::cci::Command) (such as `get` or `set`), the opcode, the request as a pattern, and the
/// expression that carries the command out. Rows are in the order of opcodes.
///
/// ```
/// use weft_cxl::cci::{Done, Reply, who};
/// use weft_parsers::cci::Response;
///
/// /// A component with a byte that hosts read and its fabric manager sets.
/// struct OneByte(u8);
///
/// const BOTH: u8 = who::PRIMARY | who::HOST;
///
/// impl OneByte {
///     weft_cxl::command_table! {
///         /// Commands of the component.
///         pub const COMMANDS;
///         /// Carries out `request`, which comes from one of `asked_by`; Unsupported where it is not for them.
///         pub fn carry_out(&mut self, request, reply: &mut Reply) asked by u8;
///         BOTH get GET_SV_STATE GetSvState => reply.send(&Response::GetSvState(self.0));
///     }
/// }
/// # use weft_parsers::cci::Request;
/// # let mut reply = Reply::new();
/// # assert!(OneByte(7).carry_out(&Request::GetSvState, &mut reply, who::HOST).is_ok());
/// # assert!(OneByte(7).carry_out(&Request::GetSvState, &mut reply, who::PROXY).is_err());
/// # assert_eq!((reply.payload(), OneByte::COMMANDS.len()), (&[7][..], 1));
/// ```
#[macro_export]
macro_rules! command_table {
    (
        $(#[$table_meta:meta])* $table_vis:vis const $table:ident;
        $(#[$run_meta:meta])* $run_vis:vis fn $run:ident(
            &mut $this:ident, $request:ident $(, $arg:ident: $ty:ty)* $(,)?
        ) asked by u8;
        $($who:ident $effect:ident $opcode:ident $variant:ident $(($it:pat))? => $handler:expr;)+
    ) => {
        $(#[$table_meta])*
        $table_vis const $table: &'static [$crate::cci::Command] = &[
            $($crate::cci::Command::$effect(::weft_parsers::cci::Opcode::$opcode, $who),)+
        ];

        $(#[$run_meta])*
        $run_vis fn $run(
            &mut $this,
            $request: &::weft_parsers::cci::Request<'_>,
            $($arg: $ty,)*
            asked_by: u8,
        ) -> $crate::cci::Done {
            match *$request {
                $(::weft_parsers::cci::Request::$variant $(($it))? if $who & asked_by != 0 => $handler,)+
                _ => Err(::weft_parsers::cci::ReturnCode::Unsupported),
            }
        }
    };
}
