//! Base64 as callers send it: strict about foreign characters, lenient about folding and padding.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::{CoreError, Result};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decodes standard base64.
///
/// ASCII white space at the ends and line folds (a line break with the white space around it) are dropped and
/// missing padding is allowed. Any other foreign character is refused: a `+` that a form decoder turned
/// into a space would otherwise yield wrong bytes without an error.
///
/// # Errors
/// [`CoreError::InvalidArgument`] that names the position, never the payload.
pub fn base64_decode(encoded: &str) -> Result<Vec<u8>> {
    let trimmed = encoded.trim_matches(|c: char| c.is_ascii_whitespace());
    let unfolded = if trimmed.contains(['\n', '\r']) {
        let lines = trimmed.split(['\n', '\r']);
        lines.map(|line| line.trim_matches([' ', '\t'])).collect()
    } else {
        std::borrow::Cow::Borrowed(trimmed)
    };
    ENGINE.decode(unfolded.as_bytes()).map_err(|error| {
        use base64::DecodeError as E;
        let reason = match error {
            E::InvalidByte(at, _) => format!("a character outside the alphabet at position {at}"),
            E::InvalidLength(len) => format!("a length of {len} characters is impossible"),
            E::InvalidLastSymbol(at, _) => format!("stray bits in the last character at position {at}"),
            E::InvalidPadding => "wrong padding".to_owned(),
        };
        CoreError::argument(format!("not base64: {reason}"))
    })
}

#[cfg(test)]
mod tests {
    use super::base64_decode;

    const BYTES: &[u8] = &[0xff, 0xef, 0xbe, 0xfb, 0x00, 0x01];

    #[test]
    fn plain_folded_and_unpadded_forms_agree() {
        assert_eq!(base64_decode("/++++wAB").as_deref(), Ok(BYTES));
        assert_eq!(base64_decode("/+++\r\n +wAB\n").as_deref(), Ok(BYTES));
        assert_eq!(base64_decode("aGk"), base64_decode("aGk="));
    }

    #[test]
    fn foreign_characters_are_refused() {
        for form in ["/    wAB", "_---+wAB", "%2F+++wAB", "aGk=aGk=", "a"] {
            assert!(base64_decode(form).is_err(), "{form}");
        }
    }
}
