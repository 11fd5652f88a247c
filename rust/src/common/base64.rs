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

/// Bytes that a `data:` URL or bare base64 holds. Nothing is opened.
///
/// # Errors
/// [`CoreError::InvalidArgument`] for paths and other URLs, and as [`base64_decode`].
pub fn inline_bytes(source: &str) -> Result<Vec<u8>> {
    let has_prefix =
        |prefix: &str| source.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    if has_prefix("http:") || has_prefix("https:") || has_prefix("file:") || source.starts_with('/') {
        return Err(CoreError::argument(
            "the core opens neither files nor connections; pass the bytes, or give the path or URL to \
             PreprocessPool, whose policy says what it may open",
        ));
    }
    if !has_prefix("data:") {
        return base64_decode(source);
    }
    match source.split_once(',') {
        Some((header, payload)) if header.to_ascii_lowercase().ends_with(";base64") => base64_decode(payload),
        _ => Err(CoreError::argument("a data: URL needs the form data:<type>;base64,<payload>")),
    }
}

#[cfg(test)]
mod tests {
    use super::{base64_decode, inline_bytes};

    const BYTES: &[u8] = &[0xff, 0xef, 0xbe, 0xfb, 0x00, 0x01];

    #[test]
    fn plain_folded_and_unpadded_forms_agree() {
        assert_eq!(base64_decode("/++++wAB").as_deref(), Ok(BYTES));
        assert_eq!(base64_decode("/+++\r\n +wAB\n").as_deref(), Ok(BYTES));
        assert_eq!(base64_decode("aGk"), base64_decode("aGk="));
    }

    #[test]
    fn inline_sources_are_read_and_all_others_refused() {
        assert_eq!(inline_bytes("aGk=").as_deref(), Ok(&b"hi"[..]));
        assert_eq!(inline_bytes("DATA:image/png;BASE64,aGk=").as_deref(), Ok(&b"hi"[..]));
        for source in
            ["/etc/passwd", "file:///etc/passwd", "HTTPS://host/x", "data:,hi", "data:text/plain", "é/"]
        {
            assert!(inline_bytes(source).is_err(), "{source}");
        }
    }

    #[test]
    fn foreign_characters_are_refused() {
        for form in ["/    wAB", "_---+wAB", "%2F+++wAB", "aGk=aGk=", "a"] {
            assert!(base64_decode(form).is_err(), "{form}");
        }
    }
}
