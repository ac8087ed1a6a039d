package sops

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	nodes "sigs.k8s.io/yaml/goyaml.v3"
)

// keySize is the number of bytes of a data key.
const keySize = 32

// valuePrefix begins an encrypted value.
const valuePrefix = "ENC[AES256_GCM,"

// valuePattern matches an encrypted value.
var valuePattern = regexp.MustCompile(
	`^ENC\[AES256_GCM,data:([A-Za-z0-9+/=]+),iv:([A-Za-z0-9+/=]+),tag:([A-Za-z0-9+/=]+),type:([a-z0-9]+)\]$`)

// opened is a decrypted value.
type opened struct{ text, kind string }

// open decrypts a value. about is authenticated with it: the path of a field, or the time of a MAC.
func open(key []byte, value, about string) (opened, error) {
	m := valuePattern.FindStringSubmatch(value)
	if m == nil {
		return opened{}, errors.New("it does not have the format of an encrypted value")
	}
	var parts [3][]byte
	for i := range parts {
		var err error
		if parts[i], err = base64.StdEncoding.DecodeString(m[i+1]); err != nil {
			return opened{}, errors.New("it is not base64")
		}
	}
	data, iv, tag := parts[0], parts[1], parts[2]
	if len(iv) < 12 || len(iv) > 32 || len(tag) != 16 {
		return opened{}, errors.New("its lengths are wrong")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return opened{}, err
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, len(iv))
	if err != nil {
		return opened{}, err
	}
	text, err := gcm.Open(nil, iv, append(data, tag...), []byte(about))
	if err != nil {
		return opened{}, errors.New("it was changed, or moved from another field")
	}
	return opened{string(text), m[4]}, nil
}

// walker decrypts documents in place, and computes the MAC of their values.
type walker struct {
	key           []byte
	rule          func(path []string) bool
	onlyEncrypted bool // the MAC contains encrypted values only
	mac           hash.Hash
	values        []string // decrypted ones
}

// mapping decrypts the fields of a mapping at a path.
func (w *walker) mapping(n *nodes.Node, path []string) error {
	clearComments(n)
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		clearComments(key)
		switch {
		case key.Kind != nodes.ScalarNode || key.ShortTag() != "!!str":
			return fmt.Errorf("%s has a key that is not a string", describe(path))
		case seen[key.Value]:
			return fmt.Errorf("%s has the key %q twice", describe(path), key.Value)
		}
		seen[key.Value] = true
		if err := w.value(n.Content[i+1], append(path[:len(path):len(path)], key.Value)); err != nil {
			return err
		}
	}
	return nil
}

// describe returns a path for people.
func describe(path []string) string {
	if len(path) == 0 {
		return "the document"
	}
	return "field " + strings.Join(path, ".")
}

// clearComments removes comments, which can be encrypted too.
func clearComments(n *nodes.Node) { n.HeadComment, n.LineComment, n.FootComment = "", "", "" }

// value decrypts what is at a path. The items of a list have the path of the list.
func (w *walker) value(n *nodes.Node, path []string) error {
	clearComments(n)
	switch n.Kind {
	case nodes.MappingNode:
		return w.mapping(n, path)
	case nodes.SequenceNode:
		for _, item := range n.Content {
			if err := w.value(item, path); err != nil {
				return err
			}
		}
		return nil
	}
	tag := n.ShortTag()
	if tag == "!!null" { // neither encrypted nor part of the MAC
		return nil
	}
	encrypted := w.rule(path)
	if encrypted && (tag != "!!str" || n.Value != "") {
		if err := w.decrypt(n, path); err != nil {
			return fmt.Errorf("%s: %w", describe(path), err)
		}
	}
	if w.onlyEncrypted && !encrypted {
		return nil
	}
	text, err := macInput(n)
	if err != nil {
		return fmt.Errorf("%s: %w", describe(path), err)
	}
	_, _ = w.mac.Write([]byte(text)) // never fails
	return nil
}

// decrypt replaces an encrypted value.
func (w *walker) decrypt(n *nodes.Node, path []string) error {
	v, err := open(w.key, n.Value, strings.Join(path, ":")+":")
	if err != nil {
		return err
	}
	n.Style = 0
	switch v.kind {
	case "str", "bytes":
		if !utf8.ValidString(v.text) {
			return errors.New("it is not text; Secrets hold other content in base64")
		}
		n.Tag, n.Style = "!!str", nodes.DoubleQuotedStyle
	case "int", "int64":
		n.Tag = "!!int"
		_, err = strconv.ParseInt(v.text, 10, 64)
	case "float":
		n.Tag = "!!float"
		_, err = strconv.ParseFloat(v.text, 64)
	case "bool":
		n.Tag = "!!bool"
		var yes bool
		yes, err = strconv.ParseBool(v.text)
		v.text = strconv.FormatBool(yes)
	case "time":
		n.Tag = "!!timestamp"
		_, err = time.Parse(time.RFC3339Nano, v.text)
	default:
		return fmt.Errorf("it has the type %q, which is not known", v.kind)
	}
	if err != nil {
		return fmt.Errorf("it is not of its type %s", v.kind)
	}
	n.Value = v.text
	w.values = append(w.values, v.text)
	return nil
}

// macInput returns the bytes of a value for the MAC.
func macInput(n *nodes.Node) (string, error) {
	switch tag := n.ShortTag(); tag {
	case "!!str":
		return n.Value, nil
	case "!!int":
		var i int64
		if err := n.Decode(&i); err != nil {
			return "", errors.New("it is not a number of 64 bits")
		}
		return strconv.FormatInt(i, 10), nil
	case "!!float":
		var f float64
		if err := n.Decode(&f); err != nil {
			return "", errors.New("it is not a number")
		}
		return strconv.FormatFloat(f, 'f', -1, 64), nil
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return "", errors.New("it is not a bool")
		}
		if b {
			return "True", nil
		}
		return "False", nil
	case "!!timestamp":
		var t time.Time
		if err := n.Decode(&t); err != nil {
			return "", errors.New("it is not a time")
		}
		return t.Format(time.RFC3339Nano), nil
	default:
		return "", fmt.Errorf("it has the type %s, which is not supported", tag)
	}
}
