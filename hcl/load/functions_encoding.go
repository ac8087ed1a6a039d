package load

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

var (
	base64EncodeFunc = textFunc(1,
		func(a []string) (string, error) { return base64.StdEncoding.EncodeToString([]byte(a[0])), nil })
	base64DecodeFunc = textFunc(1, func(a []string) (string, error) {
		out, err := base64.StdEncoding.DecodeString(a[0])
		if err != nil {
			return "", err
		}
		if !utf8.Valid(out) {
			return "", fmt.Errorf("the decoded bytes are not UTF-8 text")
		}
		return string(out), nil
	})
	urlEncodeFunc = textFunc(1, func(a []string) (string, error) { return url.QueryEscape(a[0]), nil })
	uuidV5Func    = textFunc(2, func(a []string) (string, error) {
		spaces := map[string]uuid.UUID{
			"dns":  uuid.NameSpaceDNS,
			"url":  uuid.NameSpaceURL,
			"oid":  uuid.NameSpaceOID,
			"x500": uuid.NameSpaceX500,
		}
		space, ok := spaces[a[0]]
		if !ok {
			var err error
			if space, err = uuid.Parse(a[0]); err != nil {
				return "", err
			}
		}
		return uuid.NewSHA1(space, []byte(a[1])).String(), nil
	})
)

var hashFuncs = map[string]func() hash.Hash{"sha256": sha256.New, "sha512": sha512.New, "sha1": sha1.New,
	"md5": md5.New}

func hashFunc(name string, asBase64 bool) function.Function {
	return textFunc(1, func(a []string) (string, error) { return digestText(name, asBase64, []byte(a[0])), nil })
}

func digestText(name string, asBase64 bool, content []byte) string {
	h := hashFuncs[name]()
	h.Write(content)
	if asBase64 {
		return base64.StdEncoding.EncodeToString(h.Sum(nil))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// withoutBOM wraps a function that decodes text. The wrapper removes a UTF-8 byte order mark from the first argument.
func withoutBOM(f function.Function) function.Function {
	skipped := func(a []cty.Value) []cty.Value {
		if text := a[0]; text.IsKnown() && !text.IsNull() && text.Type() == cty.String {
			return []cty.Value{cty.StringVal(strings.TrimPrefix(text.AsString(), "\ufeff"))}
		}
		return a
	}
	return function.New(&function.Spec{
		Params: f.Params(),
		Type:   func(a []cty.Value) (cty.Type, error) { return f.ReturnTypeForValues(skipped(a)) },
		Impl:   func(a []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(skipped(a)) },
	})
}
