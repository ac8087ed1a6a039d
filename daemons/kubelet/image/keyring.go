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

// Keyring holds the credentials of a pod's pull secrets. See
// https://kubernetes.io/docs/concepts/containers/images/#config-json for the meaning of the keys of a secret.
type Keyring struct {
	entries []entry // in the order in which they are tried
}

// entry is one credential with the images that it is for.
type entry struct {
	host, port, path string // host may be a pattern; path has no leading slash
	Credential
}

// Credential authenticates the pull of one image.
type Credential struct {
	Username, Password string
	Server             string    // URL of the registry; the runtime sends the credential to no other host
	Secret             SecretRef // where it is from
}

// Auth returns the credential as CRI has it.
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
	// Longer prefixes stand behind shorter ones in the order of text, and names behind patterns.
	slices.SortStableFunc(k.entries, func(a, b entry) int { return cmp.Compare(b.key(), a.key()) })
	return k, nil
}

func (e *entry) key() string {
	key := e.host
	if e.port != "" {
		key += ":" + e.port
	}
	if e.path != "" {
		key += "/" + e.path
	}
	return key
}

// Lookup returns the credentials to try for an image, the most specific first.
func (k *Keyring) Lookup(n Name) []Credential {
	var found []Credential
	for i := range k.entries {
		if e := &k.entries[i]; e.matches(n) {
			c := e.Credential
			c.Server = n.server()
			found = append(found, c)
		}
	}
	return found
}

// matches reports whether an entry is for an image: its host has as many parts as the registry's and each part matches
// as a pattern, its port is the same, and its path is a prefix.
func (e *entry) matches(n Name) bool {
	host, port, _ := strings.Cut(n.Registry, ":")
	if e.port != port || !strings.HasPrefix(n.Repository, e.path) {
		return false
	}
	patterns, parts := strings.Split(e.host, "."), strings.Split(host, ".")
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

// auth is the credential of one key of a secret.
type auth struct{ Username, Password, Auth string }

// decode returns the entries of one secret, in the order of their keys.
func decode(s *corev1.Secret) ([]entry, error) {
	var file struct {
		Auths map[string]auth `json:"auths"`
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
	var entries []entry
	for server, a := range file.Auths {
		e := parseServer(server)
		if e.Username, e.Password, err = a.decode(); err != nil {
			return nil, fmt.Errorf("entry %q: %w", server, err)
		}
		e.Secret = SecretRef{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, Hash: e.hash()}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(b.key(), a.key()) })
	return entries, nil
}

// parseServer splits a key of a secret: a scheme and the API versions v1 and v2 are left out, and all names of Docker
// Hub are one.
func parseServer(server string) entry {
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
	if name == "index."+hub {
		name = hub
	}
	return entry{host: name, port: port, path: strings.TrimSuffix(rest, "/")}
}

// hash identifies what a registry is shown.
func (c Credential) hash() string {
	sum := sha256.Sum256([]byte(c.Username + "\x00" + c.Password))
	return hex.EncodeToString(sum[:])
}

// decode returns the user and password of an entry. The encoded pair is preferred where there is one.
func (a auth) decode() (user, password string, err error) {
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
