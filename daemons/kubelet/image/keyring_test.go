package image

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// secret returns a pull secret with one entry for each key. The user name of an entry is the key.
func secret(t *testing.T, keys ...string) *corev1.Secret {
	t.Helper()
	auths := map[string]map[string]string{}
	for _, key := range keys {
		auths[key] = map[string]string{"username": key, "password": "secret"}
	}
	data, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: data}}
}

func usersFor(t *testing.T, image string, secrets ...*corev1.Secret) []string {
	t.Helper()
	ring, err := NewKeyring(secrets)
	if err != nil {
		t.Fatal(err)
	}
	name, err := ParseName(image)
	if err != nil {
		t.Fatal(err)
	}
	var users []string
	for _, c := range ring.Lookup(name) {
		users = append(users, c.Username)
	}
	return users
}

func TestCredentialsAreSentOnlyToTheirRegistries(t *testing.T) {
	const dockerHub = "https://index.docker.io/v1/"
	for _, row := range []struct {
		key    string
		images []string // images that match the key
		others []string // images that do not match
	}{
		{dockerHub, []string{"private/web:1", "web", "docker.io/private/web:1", "index.docker.io/private/web",
			"docker.io/library/web@sha256:" + strings.Repeat("a", 64)},
			[]string{"registry:5000/web", "localhost:5000/web", "localhost/web", "evildocker.io/web",
				"docker.io.evil.example/web", "evil.docker.io/web", "registry.example/web"}},
		{"docker.io", []string{"private/web:1", "docker.io/private/web:1"},
			[]string{"registry:5000/web", "evildocker.io/web"}},
		{"docker.io/private", []string{"private/web", "docker.io/private/web"}, []string{"public/web", "web"}},
		{"registry:5000", []string{"registry:5000/web", "registry:5000/team/web:1"},
			[]string{"registry:5001/web", "registry/web", "web"}},
		{"http://localhost:5000", []string{"localhost:5000/web"}, []string{"localhost/web", "localhost:5001/web"}},
		{"localhost", []string{"localhost/web"}, []string{"localhost:5000/web"}},
		{"https://registry.example/v2/", []string{"registry.example/web", "registry.example/v2web"},
			[]string{"registry.example:443/web"}},
		{"https://registry.example/v1/team", []string{"registry.example/team/web"}, []string{"registry.example/web"}},
		{"registry.example/team", []string{"registry.example/team/web", "registry.example/team"},
			[]string{"registry.example/other/web", "registry.example/a/team"}},
		{"*.registry.example", []string{"a.registry.example/web"},
			[]string{"registry.example/web", "a.b.registry.example/web", "a.registry.example.evil/web",
				"a.registry.example:5000/web"}},
		{"*.*.registry.example:5000/team", []string{"a.b.registry.example:5000/team/web"},
			[]string{"a.registry.example:5000/team/web", "a.b.registry.example/team/web"}},
		{"app*.registry.*", []string{"app1.registry.example/web"}, []string{"ap.registry.example/web"}},
		{"a[b-c]?.example", []string{"abx.example/web"}, []string{"adx.example/web", "ab.example/web"}},
		{"[.example", nil, []string{"a.example/web"}},
		{"", nil, []string{"web", "registry.example/web"}},
	} {
		for _, image := range row.images {
			if got := usersFor(t, image, secret(t, row.key)); !slices.Equal(got, []string{row.key}) {
				t.Errorf("%q is not used for %s: %q", row.key, image, got)
			}
		}
		for _, image := range row.others {
			if got := usersFor(t, image, secret(t, row.key)); len(got) > 0 {
				t.Errorf("%q is used for %s", row.key, image)
			}
		}
	}
}

func TestTheMostSpecificCredentialIsTriedFirst(t *testing.T) {
	one := secret(t, "registry.example", "registry.example/team", "*.example", "registry.example/team/web")
	two := secret(t, "https://registry.example/team")
	want := []string{"registry.example/team/web", "registry.example/team", "https://registry.example/team",
		"registry.example", "*.example"}
	if got := usersFor(t, "registry.example/team/web:1", one, two); !slices.Equal(got, want) {
		t.Errorf("tried in the order %q, want %q", got, want)
	}
}

func TestACredentialIsRestrictedToItsServer(t *testing.T) {
	for image, want := range map[string]string{
		"web": "https://registry-1.docker.io", "registry:5000/web": "https://registry:5000",
		"a.example/web": "https://a.example",
	} {
		name, err := ParseName(image)
		if err != nil {
			t.Fatal(err)
		}
		ring, err := NewKeyring([]*corev1.Secret{secret(t, name.Registry)})
		if err != nil {
			t.Fatal(err)
		}
		found := ring.Lookup(name)
		if len(found) != 1 || found[0].Auth().ServerAddress != want {
			t.Errorf("%s: %+v, want the server %s", image, found, want)
		}
	}
}

func TestPullSecretsAreDecoded(t *testing.T) {
	pair := func(encoding *base64.Encoding, text string) string {
		return `{"auths": {"a.example": {"auth": "` + encoding.EncodeToString([]byte(text)) + `"}}}`
	}
	for _, row := range []struct {
		kind           corev1.SecretType
		key, data      string
		user, password string // empty means no credential
		fails          string
	}{
		{kind: corev1.SecretTypeDockerConfigJson, key: corev1.DockerConfigJsonKey,
			data: pair(base64.StdEncoding, "me:pass:word"), user: "me", password: "pass:word"},
		{kind: corev1.SecretTypeDockerConfigJson, key: corev1.DockerConfigJsonKey,
			data: pair(base64.RawStdEncoding, "me:password"), user: "me", password: "password"},
		{kind: corev1.SecretTypeDockercfg, key: corev1.DockerConfigKey,
			data: `{"a.example": {"username": "me", "password": "p"}}`, user: "me", password: "p"},
		{kind: corev1.SecretTypeOpaque, key: corev1.DockerConfigJsonKey,
			data: `{"auths": {"a.example": {"username": "me", "password": "p"}}}`},
		{kind: corev1.SecretTypeDockerConfigJson, key: corev1.DockerConfigJsonKey,
			data: `{"auths": {"a.example": {"auth": "!"}}}`, fails: "not valid base64"},
		{kind: corev1.SecretTypeDockerConfigJson, key: corev1.DockerConfigJsonKey,
			data: pair(base64.StdEncoding, "alone"), fails: "separated by a colon"},
		{kind: corev1.SecretTypeDockerConfigJson, key: corev1.DockerConfigJsonKey, data: `{"auths": "hidden"}`,
			fails: "not valid JSON"},
	} {
		ring, err := NewKeyring([]*corev1.Secret{{Type: row.kind, Data: map[string][]byte{row.key: []byte(row.data)}}})
		if row.fails != "" {
			if err == nil || !strings.Contains(err.Error(), row.fails) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s: %v, want an error that says %q", row.data, err, row.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.data, err)
			continue
		}
		found := ring.Lookup(Name{Registry: "a.example", Repository: "web"})
		if row.user == "" && len(found) == 0 {
			continue
		}
		if len(found) != 1 || found[0].Username != row.user || found[0].Password != row.password {
			t.Errorf("%s %s: %+v", row.kind, row.data, found)
		}
	}
}

func TestTagsAndDigestsAreIgnored(t *testing.T) {
	for image, want := range map[string]string{
		"web": "web", "web:1": "web", "a/web@sha256:abc": "a/web", "registry:5000/web": "registry:5000/web",
		"registry:5000/web:1@sha256:abc": "registry:5000/web",
	} {
		if got := Untagged(image); got != want {
			t.Errorf("%s became %s, want %s", image, got, want)
		}
	}
}
