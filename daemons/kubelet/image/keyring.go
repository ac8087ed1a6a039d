package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Keyring holds the credentials of a pod's pull secrets, or of a node. See
// https://kubernetes.io/docs/concepts/containers/images/#config-json for the meaning of the keys of a secret.
type Keyring struct {
	entries []entry // in the order in which they are tried
}

// entry is one credential with the images to which it applies.
type entry struct {
	Pattern
	Credential
}

// Pattern selects images by their registry and by a prefix of their path.
type Pattern struct {
	Host string // each part between dots may contain * and ?
	Port string
	Path string // without leading and trailing slashes
}

// Credential authenticates the pull of one image.
type Credential struct {
	Username, Password string
	Server             string    // URL of the registry; the runtime does not send the credential to other hosts
	Secret             SecretRef // the source; empty for credentials of the node, which all pods may use
}

// Auth is the credential of one key of a Docker configuration.
type Auth struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth,omitempty"` // username:password in base64
}

// Auth returns the credential in CRI's form.
func (c Credential) Auth() *criapi.AuthConfig {
	return &criapi.AuthConfig{Username: c.Username, Password: c.Password, ServerAddress: c.Server}
}

// NewKeyring returns the credentials of pull secrets. Secrets of other types are ignored. It fails when a secret cannot
// be decoded.
func NewKeyring(secrets []*corev1.Secret) (*Keyring, error) {
	k := &Keyring{}
	for _, s := range secrets {
		entries, err := decode(s)
		if err != nil {
			return nil, fmt.Errorf("image pull secret %s/%s: %w", s.Namespace, s.Name, err)
		}
		k.entries = append(k.entries, entries...)
	}
	k.sort()
	return k, nil
}

// NewNodeKeyring returns a keyring with the node's Docker configuration. It returns an error if an entry cannot be
// decoded.
func NewNodeKeyring(auths map[string]Auth) (*Keyring, error) {
	entries, err := decodeAuths(auths)
	if err != nil {
		return nil, err
	}
	k := &Keyring{entries}
	k.sort()
	return k, nil
}

// sort orders the entries from the most to the least specific: in descending text order, longer prefixes come before
// shorter ones, and names before patterns.
func (k *Keyring) sort() {
	slices.SortStableFunc(k.entries, func(a, b entry) int { return cmp.Compare(b.key(), a.key()) })
}

func (p Pattern) key() string {
	key := p.Host
	if p.Port != "" {
		key += ":" + p.Port
	}
	if p.Path != "" {
		key += "/" + p.Path
	}
	return key
}

// Lookup returns the credentials to try for an image, the most specific first.
func (k *Keyring) Lookup(n Name) []Credential {
	var found []Credential
	for i := range k.entries {
		if e := &k.entries[i]; e.Matches(n) {
			c := e.Credential
			c.Server = n.server()
			found = append(found, c)
		}
	}
	return found
}

// Matches reports whether an image matches the pattern. The registry's host must have the same number of parts and each
// part must match. The port must be equal, and the path must start with the pattern's path.
func (p Pattern) Matches(n Name) bool {
	host, port, _ := strings.Cut(n.Registry, ":")
	if p.Port != port || !strings.HasPrefix(n.Repository, p.Path) {
		return false
	}
	patterns, parts := strings.Split(p.Host, "."), strings.Split(host, ".")
	if len(patterns) != len(parts) {
		return false
	}
	for i := range parts {
		if ok, err := path.Match(patterns[i], parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// decode returns the entries of one secret, in the order of their keys.
func decode(s *corev1.Secret) ([]entry, error) {
	var file struct {
		Auths map[string]Auth `json:"auths"`
	}
	var err error
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		err = json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &file)
	case corev1.SecretTypeDockercfg:
		err = json.Unmarshal(s.Data[corev1.DockerConfigKey], &file.Auths)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, errors.New("its content is not valid JSON") // the cause would quote the secret
	}
	entries, err := decodeAuths(file.Auths)
	for i := range entries {
		e := &entries[i]
		e.Secret = SecretRef{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, Hash: e.hash()}
	}
	return entries, err
}

// decodeAuths returns the entries of a Docker configuration, in the order of their keys.
func decodeAuths(auths map[string]Auth) (entries []entry, err error) {
	for server, a := range auths {
		e := entry{Pattern: parseServer(server)}
		if e.Username, e.Password, err = a.decode(); err != nil {
			return nil, fmt.Errorf("entry %q: %w", server, err)
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(b.key(), a.key()) })
	return entries, nil
}

// parseServer parses a key of a secret. It ignores a scheme and the API versions v1 and v2, and treats all names of
// Docker Hub as one.
func parseServer(server string) Pattern {
	server = strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	host, rest, _ := strings.Cut(server, "/")
	for _, version := range []string{"v1", "v2"} {
		if rest == version {
			rest = ""
		} else if below, ok := strings.CutPrefix(rest, version+"/"); ok {
			rest = below
		}
	}
	name, port, _ := strings.Cut(host, ":")
	if name == "index."+dockerHub {
		name = dockerHub
	}
	return Pattern{Host: name, Port: port, Path: strings.TrimSuffix(rest, "/")}
}

// hash returns a digest of the user name and password.
func (c Credential) hash() string {
	sum := sha256.Sum256([]byte(c.Username + "\x00" + c.Password))
	return hex.EncodeToString(sum[:])
}

// decode returns the user name and password of an entry. If auth is set, it takes precedence.
func (a Auth) decode() (user, password string, err error) {
	if a.Auth == "" {
		return a.Username, a.Password, nil
	}
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(a.Auth, "=") {
		encoding = base64.StdEncoding
	}
	pair, err := encoding.DecodeString(a.Auth)
	if err != nil {
		return "", "", errors.New("auth is not valid base64")
	}
	user, password, ok := strings.Cut(string(pair), ":")
	if !ok {
		return "", "", errors.New("auth is not a user and a password, separated by a colon")
	}
	return user, password, nil
}
