package load

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"

	"clusterctl/hcl/data"
)

var (
	urlDecodeFunc  = textFunc(1, func(a []string) (string, error) { return utf8Text(url.QueryUnescape(a[0])) })
	base64GzipFunc = textFunc(1, func(a []string) (string, error) {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		if _, err := w.Write([]byte(a[0])); err != nil {
			return "", err
		}
		if err := w.Close(); err != nil {
			return "", err
		}
		return base64.StdEncoding.EncodeToString(out.Bytes()), nil
	})
	base64GunzipFunc = textFunc(1, func(a []string) (string, error) {
		packed, err := base64.StdEncoding.DecodeString(a[0])
		if err != nil {
			return "", err
		}
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return "", err
		}
		plain, err := io.ReadAll(io.LimitReader(r, data.MaxBytes+1))
		if err == nil && len(plain) > data.MaxBytes {
			err = fmt.Errorf("it has more than %d MiB", data.MaxBytes>>20)
		}
		return utf8Text(string(plain), err)
	})
	textEncodeFunc = textFunc(2, func(a []string) (string, error) {
		e, err := encodingOf(a[1])
		if err != nil {
			return "", err
		}
		out, err := e.NewEncoder().String(a[0])
		if err != nil {
			return "", fmt.Errorf("the text has characters that %s does not have", a[1])
		}
		return base64.StdEncoding.EncodeToString([]byte(out)), nil
	})
	textDecodeFunc = textFunc(2, func(a []string) (string, error) {
		raw, err := base64.StdEncoding.DecodeString(a[0])
		if err != nil {
			return "", err
		}
		e, err := encodingOf(a[1])
		if err != nil {
			return "", err
		}
		out, err := e.NewDecoder().Bytes(raw)
		if err != nil || bytes.ContainsRune(out, utf8.RuneError) {
			return "", fmt.Errorf("the bytes are not text in %s", a[1])
		}
		return string(out), nil
	})
)

func utf8Text(s string, err error) (string, error) {
	if err == nil && !utf8.ValidString(s) {
		err = errors.New("the decoded bytes are not UTF-8 text")
	}
	return s, err
}

// encodings are the character encodings that textencodebase64 supports, by their IANA names and aliases. East Asian
// encodings are omitted because of their size.
var encodings = []struct {
	names    []string
	encoding encoding.Encoding
}{
	{[]string{"UTF-8", "csUTF8"}, unicode.UTF8},
	{[]string{"UTF-16", "csUTF16"}, unicode.UTF16(unicode.BigEndian, unicode.UseBOM)},
	{[]string{"UTF-16BE", "csUTF16BE"}, unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)},
	{[]string{"UTF-16LE", "csUTF16LE"}, unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)},
	{[]string{"ISO-8859-1", "ISO_8859-1", "latin1", "l1", "IBM819", "CP819"}, charmap.ISO8859_1},
	{[]string{"ISO-8859-2", "ISO_8859-2", "latin2", "l2"}, charmap.ISO8859_2},
	{[]string{"ISO-8859-3", "ISO_8859-3", "latin3", "l3"}, charmap.ISO8859_3},
	{[]string{"ISO-8859-4", "ISO_8859-4", "latin4", "l4"}, charmap.ISO8859_4},
	{[]string{"ISO-8859-5", "ISO_8859-5", "cyrillic"}, charmap.ISO8859_5},
	{[]string{"ISO-8859-6", "ISO_8859-6", "arabic", "ASMO-708"}, charmap.ISO8859_6},
	{[]string{"ISO-8859-7", "ISO_8859-7", "greek", "greek8"}, charmap.ISO8859_7},
	{[]string{"ISO-8859-8", "ISO_8859-8", "hebrew"}, charmap.ISO8859_8},
	{[]string{"ISO-8859-9", "ISO_8859-9", "latin5", "l5"}, charmap.ISO8859_9},
	{[]string{"ISO-8859-10", "latin6", "l6"}, charmap.ISO8859_10},
	{[]string{"ISO-8859-13"}, charmap.ISO8859_13},
	{[]string{"ISO-8859-14", "latin8", "l8", "iso-celtic"}, charmap.ISO8859_14},
	{[]string{"ISO-8859-15", "ISO_8859-15", "Latin-9"}, charmap.ISO8859_15},
	{[]string{"ISO-8859-16", "latin10", "l10"}, charmap.ISO8859_16},
	{[]string{"windows-1250"}, charmap.Windows1250},
	{[]string{"windows-1251"}, charmap.Windows1251},
	{[]string{"windows-1252"}, charmap.Windows1252},
	{[]string{"windows-1253"}, charmap.Windows1253},
	{[]string{"windows-1254"}, charmap.Windows1254},
	{[]string{"windows-1255"}, charmap.Windows1255},
	{[]string{"windows-1256"}, charmap.Windows1256},
	{[]string{"windows-1257"}, charmap.Windows1257},
	{[]string{"windows-1258"}, charmap.Windows1258},
	{[]string{"windows-874"}, charmap.Windows874},
	{[]string{"IBM037", "cp037"}, charmap.CodePage037},
	{[]string{"IBM437", "cp437"}, charmap.CodePage437},
	{[]string{"IBM850", "cp850"}, charmap.CodePage850},
	{[]string{"IBM852", "cp852"}, charmap.CodePage852},
	{[]string{"IBM855", "cp855"}, charmap.CodePage855},
	{[]string{"IBM860", "cp860"}, charmap.CodePage860},
	{[]string{"IBM862", "cp862"}, charmap.CodePage862},
	{[]string{"IBM863", "cp863"}, charmap.CodePage863},
	{[]string{"IBM865", "cp865"}, charmap.CodePage865},
	{[]string{"IBM866", "cp866"}, charmap.CodePage866},
	{[]string{"KOI8-R"}, charmap.KOI8R},
	{[]string{"KOI8-U"}, charmap.KOI8U},
	{[]string{"macintosh", "mac"}, charmap.Macintosh},
}

func encodingOf(name string) (encoding.Encoding, error) {
	for _, e := range encodings {
		for _, n := range e.names {
			if strings.EqualFold(n, name) {
				return e.encoding, nil
			}
		}
	}
	return nil, fmt.Errorf("%q is not a known character encoding; UTF-8, UTF-16LE, UTF-16BE, ISO-8859-1 and "+
		"windows-1252 are, among others", name)
}
