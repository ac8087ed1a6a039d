package credential

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/daemons/kubelet/image"
)

func TestPatternsMatchAsDocumented(t *testing.T) {
	for _, c := range []struct {
		pattern, image string
		want           bool
	}{
		{"registry.io", "registry.io/app", true},
		{"registry.io", "registry.io:8080/app", false},
		{"registry.io:8080", "registry.io:8080/app:v1", true},
		{"registry.io:8080/path", "registry.io:8080/path/app", true},
		{"registry.io:8080/path", "registry.io:8080/other/app", false},
		{"*.registry.io", "eu.registry.io/app", true},
		{"*.registry.io", "registry.io/app", false},
		{"*.registry.io", "a.b.registry.io/app", false},
		{"*.*.registry.io", "a.b.registry.io/app", true},
		{"app*.k8s.io", "app-1.k8s.io/x", true},
		{"app*.k8s.io", "k8s.io/x", false},
		{"123456789.dkr.ecr.us-east-1.amazonaws.com",
			"123456789.dkr.ecr.us-east-1.amazonaws.com/app@sha256:" + strings.Repeat("0", 64), true},
		{"*.azurecr.io", "me.azurecr.io/app", true},
		{"docker.io", "nginx", true},
		{"docker.io/library", "library/nginx", true},
		{"localhost:5000", "localhost:5000/x", true},
		{"localhost", "localhost/x", true},
	} {
		p, err := parsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Matches(parseName(t, c.image)); got != c.want {
			t.Errorf("%s matches %s: %v", c.pattern, c.image, got)
		}
	}
	for _, text := range []string{"https://registry.io", "", "/x", "[.io"} {
		if _, err := parsePattern(text); err == nil {
			t.Errorf("parsePattern accepts %q", text)
		}
	}
}

// newPluginNode returns a node with one plugin that runs the script, and the file to which the plugin appends its
// requests.
func newPluginNode(t *testing.T, script, provider string) (*Node, string) {
	t.Helper()
	dir := t.TempDir()
	requested := filepath.Join(dir, "asked")
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	// The plugin is a shell that reads the script. A program written by this process cannot be executed while another
	// test starts a process (ETXTBSY).
	write("script", fmt.Sprintf("cat >>%s; echo >>%s; %s\n", requested, requested, script), 0o600)
	if err := os.Symlink("/bin/sh", filepath.Join(dir, "provider")); err != nil {
		t.Fatal(err)
	}
	write("providers.yaml", fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"+
		"providers:\n- name: provider\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  args: [%q]\n  %s\n",
		filepath.Join(dir, "script"), strings.ReplaceAll(provider, "\n", "\n  ")), 0o600)
	n, err := New(Options{RootDir: dir, Config: filepath.Join(dir, "providers.yaml"), BinDir: dir,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return n, requested
}

const pluginConfig = "matchImages: [\"*.example.com\"]\ndefaultCacheDuration: 1h\nenv: [{name: USER_NAME, value: me}]"

func pluginResponse(kind, duration string) string {
	return `echo "{\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",` +
		`\"kind\":\"CredentialProviderResponse\",\"cacheKeyType\":\"` + kind + `\",` + duration +
		`\"auth\":{\"*.example.com\":{\"username\":\"$USER_NAME\",\"password\":\"secret\"}}}"`
}

func parseName(t *testing.T, text string) image.Name {
	t.Helper()
	name, err := image.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// credentialsFor returns the credentials that the node has for an image.
func credentialsFor(t *testing.T, n *Node, text string) (list []string) {
	t.Helper()
	for _, c := range n.Lookup(t.Context(), parseName(t, text)) {
		list = append(list, c.Username+" "+c.Password+" at "+c.Server)
		if c.Secret != (image.SecretRef{}) {
			t.Errorf("the node's credential for %s names secret %v", text, c.Secret)
		}
	}
	return list
}

func TestPluginResponsesAreCachedByTheirScope(t *testing.T) {
	images := []string{"a.example.com/x:1", "a.example.com/x:2", "a.example.com/y", "b.example.com/x", "other.org/x"}
	for kind, want := range map[string]int{"Image": 3, "Registry": 2, "Global": 1} {
		n, requested := newPluginNode(t, pluginResponse(kind, ""), pluginConfig)
		for range 2 {
			for _, image := range images {
				got := credentialsFor(t, n, image)
				if wanted := !strings.HasPrefix(image, "other"); wanted !=
					(len(got) == 1 && strings.HasPrefix(got[0], "me secret at https://")) {
					t.Errorf("%s: %s has %q", kind, image, got)
				}
			}
		}
		text, err := os.ReadFile(requested)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), "\n"); got != want ||
			!strings.HasPrefix(string(text), `{"kind":"CredentialProviderRequest",`+
				`"apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"a.example.com/x"}`) {
			t.Errorf("%s: the plugin ran %d times, want %d:\n%s", kind, got, want, text)
		}
		n.plugins[0].now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		credentialsFor(t, n, images[0])
		if again, err := os.ReadFile(requested); err != nil || len(again) <= len(text) {
			t.Errorf("%s: an expired response is used, %v", kind, err)
		}
	}
	n, requested := newPluginNode(t, pluginResponse("Global", `\"cacheDuration\":\"0s\",`), pluginConfig)
	credentialsFor(t, n, images[0])
	credentialsFor(t, n, images[0])
	if text, err := os.ReadFile(requested); err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("a response with cacheDuration 0 is used again: %s, %v", text, err)
	}
}

func TestAFailedPluginGivesNoCredentialsAndLogsNoPassword(t *testing.T) {
	for name, script := range map[string]string{
		"fails":            "echo out of order >&2; exit 1",
		"no JSON":          "echo secret",
		"another kind":     `echo "{\"kind\":\"Other\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\"}"`,
		"another key type": pluginResponse("Everything", ""),
		"too much":         "head -c 2000000 /dev/zero",
	} {
		n, _ := newPluginNode(t, script, pluginConfig)
		log := &strings.Builder{}
		n.log = slog.New(slog.NewTextHandler(log, nil))
		if got := credentialsFor(t, n, "a.example.com/x"); len(got) > 0 || log.Len() == 0 ||
			strings.Contains(log.String(), "secret") {
			t.Errorf("%s: credentials %q, log %s", name, got, log)
		}
	}
}

// A deleted pod stops waiting for a plugin that is running for another pod.
func TestACanceledLookupDoesNotWaitForAPlugin(t *testing.T) {
	n, _ := newPluginNode(t, "exec sleep 30", "matchImages: [registry.io]\ndefaultCacheDuration: 1m")
	name := parseName(t, "registry.io/app")
	first, stop := context.WithCancel(t.Context())
	defer stop()
	requested := make(chan struct{})
	go func() {
		defer close(requested)
		n.Lookup(first, name)
	}()
	for len(n.plugins[0].running) == 0 {
		time.Sleep(time.Millisecond)
	}
	second, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	n.Lookup(second, name)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it waited for %s", took)
	}
	stop()
	<-requested
}

func TestTheKubeletConfigIsReadForEachLookup(t *testing.T) {
	dir := t.TempDir()
	n, err := New(Options{RootDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if got := credentialsFor(t, n, "registry.example/x"); len(got) > 0 {
		t.Errorf("without a file, the credentials are %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"),
		[]byte(`{"written by": "x", "auths": {"registry.example": {"username": "u", "password": "p"}}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got := credentialsFor(t, n, "registry.example/x"); len(got) != 1 || got[0] != "u p at https://registry.example" {
		t.Errorf("the credentials are %q", got)
	}
}

func TestUnsupportedConfigurationsAreRejected(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
	const version = "credentialprovider.kubelet.k8s.io/v1"
	const good = "- {name: p, matchImages: [a.io], defaultCacheDuration: 1m, apiVersion: " + version
	changed := func(old, now string) string { return strings.Replace(head+good+"}", old, now, 1) }
	for text, want := range map[string]string{
		head + good + "}":                "",
		"kind: CredentialProviderConfig": "not kubelet.config.k8s.io/v1",
		head + "  []":                    "at least one",
		head + good + ", other: 1}":      "unknown field",
		head + good + ", tokenAttributes: {serviceAccountTokenAudience: x}}":        "tokenAttributes",
		changed("name: p,", "name: ../p,"):                                          "not a valid program name",
		changed("name: p,", "name: q,"):                                             "no such file",
		changed("1m", "-1m"):                                                        "defaultCacheDuration",
		changed("[a.io]", "[\"https://a.io\"]"):                                     "scheme",
		changed(version, "credentialprovider.kubelet.k8s.io/v2"):                    "apiVersion",
		head + good + "}\n" + good + "}":                                            "twice",
		head + "- {name: p, defaultCacheDuration: 1m, apiVersion: " + version + "}": "matchImages",
		head + "- {name: p, matchImages: [a.io], apiVersion: " + version + "}":      "defaultCacheDuration",
		changed("CredentialProviderConfig", "KubeletConfiguration"):                 "KubeletConfiguration",
		changed("kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1alpha1"):       "v1alpha1",
		changed(version, "credentialprovider.kubelet.k8s.io/v1beta1"):               "",
	} {
		_, err := parsePlugins([]byte(text), dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
}
