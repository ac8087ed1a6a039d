package sops

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"
	"sigs.k8s.io/yaml"
	nodes "sigs.k8s.io/yaml/goyaml.v3"
)

// metadataKey is the field of a document with the metadata.
const metadataKey = "sops"

// defaultSuffix ends the names of fields that are not encrypted, if the metadata has no rule.
const defaultSuffix = "_unencrypted"

// macOnlyEncrypted begins the input of a MAC over encrypted values only, so that it differs from one over all values.
var macOnlyEncrypted, _ = hex.DecodeString("8a3fd2ad54ce66527b1034f3d147be0b0b975b3bf44f72c6fdadec8176f27d69")

// macPattern matches the MAC in a file that SOPS has encrypted, in any of its formats.
var macPattern = regexp.MustCompile(`mac"?\s*[:=]\s*"?ENC\[AES256_GCM,`)

// rootPattern matches the field sops of a document that is perhaps damaged.
var rootPattern = regexp.MustCompile(`(?m)^(?:sops:|\{?\s*"sops"\s*:)`)

// metadata is the field sops of a document.
type metadata struct {
	Age []struct {
		Recipient string `yaml:"recipient"`
		Enc       string `yaml:"enc"`
	} `yaml:"age"`
	KeyGroups         []nodes.Node `yaml:"key_groups"`
	LastModified      string       `yaml:"lastmodified"`
	MAC               string       `yaml:"mac"`
	MACOnlyEncrypted  bool         `yaml:"mac_only_encrypted"`
	EncryptedSuffix   string       `yaml:"encrypted_suffix"`
	UnencryptedSuffix string       `yaml:"unencrypted_suffix"`
	EncryptedRegex    string       `yaml:"encrypted_regex"`
	UnencryptedRegex  string       `yaml:"unencrypted_regex"`

	EncryptedCommentRegex   string `yaml:"encrypted_comment_regex"`
	UnencryptedCommentRegex string `yaml:"unencrypted_comment_regex"`
}

// decryptFile decrypts the documents of a file. It returns nil if the file is not encrypted, and otherwise also the
// decrypted values. Errors contain none of them.
func decryptFile(text []byte, isJSON bool, identities []age.Identity) (plain []byte, values []string, err error) {
	documents, err := parseDocuments(text)
	if err != nil {
		return nil, nil, err
	}
	if documents == nil {
		return nil, nil, nil
	}
	meta, err := readMetadata(documents)
	if err != nil {
		return nil, nil, err
	}
	key, err := meta.dataKey(identities)
	if err != nil {
		return nil, nil, err
	}
	w := &walker{key: key, mac: sha512.New(), onlyEncrypted: meta.MACOnlyEncrypted}
	if w.rule, err = meta.rule(); err != nil {
		return nil, nil, err
	}
	if w.onlyEncrypted {
		_, _ = w.mac.Write(macOnlyEncrypted) // never fails
	}
	for _, root := range documents {
		if err := w.mapping(root, nil); err != nil {
			return nil, nil, err
		}
	}
	if err := meta.checkMAC(key, w.mac); err != nil {
		return nil, nil, err
	}
	plain, err = encodeDocuments(documents, isJSON)
	return plain, w.values, err
}

// parseDocuments returns the mappings of an encrypted file, or nil if the file is not encrypted. In an encrypted file
// all documents are.
func parseDocuments(text []byte) (documents []*nodes.Node, err error) {
	if len(text) > maxFile {
		if rootPattern.Match(text) || bytes.Contains(text, []byte(`"sops":`)) {
			return nil, fmt.Errorf("it has %d bytes, and encrypted files may have at most %d", len(text), maxFile)
		}
		return nil, nil
	}
	encrypted := 0
	for decoder := nodes.NewDecoder(bytes.NewReader(text)); ; {
		var document nodes.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if rootPattern.Match(text) && macPattern.Match(text) {
				return nil, errors.New("it is encrypted and is not valid YAML or JSON, perhaps after a merge")
			}
			return nil, nil // the renderer reports it, or it is a template
		}
		if len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null" {
			continue
		}
		root := document.Content[0]
		documents = append(documents, root)
		if findMetadata(root) != nil {
			encrypted++
		}
	}
	if encrypted == 0 {
		return nil, nil
	}
	if encrypted < len(documents) {
		return nil, errors.New("some of its documents are encrypted and others are not; write them into separate files")
	}
	for _, root := range documents {
		if hasAlias(root) {
			return nil, errors.New("an encrypted file has an anchor or an alias, which SOPS never writes")
		}
	}
	return documents, nil
}

// hasAlias reports whether a node contains an anchor or an alias.
func hasAlias(n *nodes.Node) bool {
	return n.Kind == nodes.AliasNode || n.Anchor != "" || slices.ContainsFunc(n.Content, hasAlias)
}

// findMetadata returns the metadata of a document, or nil if it is not encrypted. A field sops without a MAC is
// something else.
func findMetadata(root *nodes.Node) *nodes.Node {
	meta := fieldOf(root, metadataKey)
	if mac := fieldOf(meta, "mac"); mac == nil || mac.Kind != nodes.ScalarNode ||
		!strings.HasPrefix(mac.Value, valuePrefix) {
		return nil
	}
	return meta
}

// fieldOf returns a field of a mapping, or nil.
func fieldOf(n *nodes.Node, name string) *nodes.Node {
	if n == nil || n.Kind != nodes.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Kind == nodes.ScalarNode && n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// readMetadata removes the metadata from the documents and returns it. SOPS writes the same into all of them.
func readMetadata(documents []*nodes.Node) (*metadata, error) {
	var first *metadata
	for _, root := range documents {
		m := &metadata{}
		if err := findMetadata(root).Decode(m); err != nil {
			return nil, errors.New("its field sops does not have the format of SOPS")
		}
		if first == nil {
			first = m
		}
		if m.MAC != first.MAC {
			return nil, errors.New("its documents were encrypted separately; write them into separate files")
		}
		for i := 0; i+1 < len(root.Content); i += 2 {
			if root.Content[i].Value == metadataKey {
				root.Content = slices.Delete(root.Content, i, i+2)
				break
			}
		}
		if fieldOf(root, metadataKey) != nil {
			return nil, errors.New("it has two fields sops")
		}
	}
	return first, nil
}

// dataKey decrypts the data key.
func (m *metadata) dataKey(identities []age.Identity) ([]byte, error) {
	switch {
	case len(m.KeyGroups) > 0:
		return nil, errors.New("it is encrypted with key groups, which are not supported")
	case len(m.Age) == 0:
		return nil, errors.New("it has no age recipient; other keys of SOPS are not supported")
	case len(m.Age) > maxRecipients:
		return nil, fmt.Errorf("it has %d recipients, and at most %d are allowed", len(m.Age), maxRecipients)
	}
	var recipients []string
	for _, r := range m.Age {
		if len(r.Enc) > maxEnvelope {
			return nil, fmt.Errorf("the data key of a recipient has more than %d bytes", maxEnvelope)
		}
		if recipients = append(recipients, fmt.Sprintf("%.80q", r.Recipient)); len(recipients) > 10 {
			recipients = recipients[:10]
		}
		content, err := age.Decrypt(armor.NewReader(strings.NewReader(r.Enc)), identities...)
		var other *age.NoIdentityMatchError
		switch {
		case errors.As(err, &other):
			continue
		case err != nil:
			return nil, errors.New("its data key is damaged")
		}
		key, err := io.ReadAll(io.LimitReader(content, keySize+1))
		if err != nil || len(key) != keySize {
			return nil, errors.New("its data key is damaged")
		}
		return key, nil
	}
	return nil, fmt.Errorf("none of the private keys matches; it is encrypted for %s", strings.Join(recipients, ", "))
}

// rule returns a function that reports whether the value at a path is encrypted.
func (m *metadata) rule() (func(path []string) bool, error) {
	if m.EncryptedCommentRegex != "" || m.UnencryptedCommentRegex != "" {
		return nil, errors.New("which of its values are encrypted depends on comments, which is not supported")
	}
	any := func(matches func(string) bool) func([]string) bool {
		return func(path []string) bool { return slices.ContainsFunc(path, matches) }
	}
	var rules []func([]string) bool // each must hold
	suffix := m.UnencryptedSuffix
	if suffix == "" && m.EncryptedSuffix == "" && m.EncryptedRegex == "" && m.UnencryptedRegex == "" {
		suffix = defaultSuffix
	}
	set := 0
	if suffix != "" {
		set++
		except := any(func(name string) bool { return strings.HasSuffix(name, suffix) })
		rules = append(rules, func(path []string) bool { return !except(path) })
	}
	if m.EncryptedSuffix != "" {
		set++
		rules = append(rules, any(func(name string) bool { return strings.HasSuffix(name, m.EncryptedSuffix) }))
	}
	for _, r := range []struct {
		pattern string
		negate  bool
	}{{m.UnencryptedRegex, true}, {m.EncryptedRegex, false}} {
		if r.pattern == "" {
			continue
		}
		set++
		pattern, err := regexp.Compile(r.pattern)
		if err != nil {
			return nil, errors.New("a pattern in its field sops is not a regular expression")
		}
		matches := any(pattern.MatchString)
		rules = append(rules, func(path []string) bool { return matches(path) != r.negate })
	}
	if set > 1 {
		return nil, errors.New("its field sops has more than one rule on what is encrypted")
	}
	return rules[0], nil
}

// checkMAC compares the MAC with that of the decrypted values.
func (m *metadata) checkMAC(key []byte, mac hash.Hash) error {
	at, err := time.Parse(time.RFC3339, m.LastModified)
	if err != nil {
		return errors.New("sops.lastmodified is not a time")
	}
	stored, err := open(key, m.MAC, at.Format(time.RFC3339))
	if err != nil {
		return fmt.Errorf("its MAC cannot be decrypted: %w", err)
	}
	if got := strings.ToUpper(hex.EncodeToString(mac.Sum(nil))); !hmac.Equal([]byte(got), []byte(stored.text)) {
		return errors.New("its MAC does not match: the file was changed without SOPS, by an edit or a merge; if the " +
			"change is intended, run `sops edit --ignore-mac`")
	}
	return nil
}

// encodeDocuments writes the documents.
func encodeDocuments(documents []*nodes.Node, isJSON bool) ([]byte, error) {
	var out bytes.Buffer
	encoder := nodes.NewEncoder(&out)
	for _, root := range documents {
		if err := encoder.Encode(root); err != nil {
			return nil, errors.New("it cannot be encoded")
		}
	}
	if err := encoder.Close(); err != nil {
		return nil, errors.New("it cannot be encoded")
	}
	if !isJSON || len(documents) != 1 {
		return out.Bytes(), nil
	}
	text, err := yaml.YAMLToJSON(out.Bytes())
	if err != nil {
		return nil, errors.New("it cannot be encoded")
	}
	return text, nil
}
