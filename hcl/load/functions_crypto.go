package load

import (
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/gocty"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/ssh"
)

// maxCost is the highest cost of bcrypt. It takes a minute, and each further step doubles the time.
const maxCost = 20

// bcryptFunc is bcrypt(text, cost). The default cost is 10.
var bcryptFunc = function.New(&function.Spec{
	Params:   []function.Parameter{{Name: "s", Type: cty.String}},
	VarParam: &function.Parameter{Name: "cost", Type: cty.Number},
	Type:     function.StaticReturnType(cty.String),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		cost := bcrypt.DefaultCost
		switch {
		case len(a) > 2:
			return cty.NilVal, errors.New("bcrypt takes a text and a cost")
		case len(a) == 2:
			if err := gocty.FromCtyValue(a[1], &cost); err != nil {
				return cty.NilVal, function.NewArgError(1, err)
			}
			if cost < bcrypt.MinCost || cost > maxCost {
				return cty.NilVal, function.NewArgErrorf(1, "must be from %d to %d", bcrypt.MinCost, maxCost)
			}
		}
		out, err := bcrypt.GenerateFromPassword([]byte(a[0].AsString()), cost)
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		return cty.StringVal(string(out)), nil
	},
})

// rsaDecryptFunc is rsadecrypt(ciphertext in base64, private key in PEM).
var rsaDecryptFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "ciphertext", Type: cty.String}, {Name: "privatekey", Type: cty.String}},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		sealed, err := base64.StdEncoding.DecodeString(a[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgErrorf(0, "is not base64: %w", err)
		}
		raw, err := ssh.ParseRawPrivateKey([]byte(a[1].AsString()))
		if err != nil {
			return cty.NilVal, function.NewArgError(1, errors.New(
				"is not a private key in PEM, or one that has a passphrase"))
		}
		key, ok := raw.(*rsa.PrivateKey)
		if !ok {
			return cty.NilVal, function.NewArgErrorf(1, "is not an RSA key")
		}
		plain, err := rsa.DecryptPKCS1v15(nil, key, sealed)
		if err != nil {
			return cty.NilVal, errors.New("the text was not encrypted for this key")
		}
		if !utf8.Valid(plain) {
			return cty.NilVal, fmt.Errorf("the decrypted bytes are not UTF-8 text")
		}
		return cty.StringVal(string(plain)), nil
	},
})
