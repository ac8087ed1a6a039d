package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"clusterctl/certs"
)

// sample is a stable kind: its properties in discovery, and objects of it.
type sample struct {
	Version      string   `json:"version"` // as in apiVersion
	Kind         string   `json:"kind"`
	Resource     string   `json:"resource"`
	Namespaced   bool     `json:"namespaced"`
	Short        []string `json:"short"`
	Categories   []string `json:"categories"`
	Verbs        []string `json:"verbs"`        // empty: all
	Subresources []string `json:"subresources"` // without status, which every kind with a Status has
	IsAnswerOnly bool     `json:"answered"`     // answered and not stored
	Name         string   `json:"name"`         // address, or a format with a number; empty: any name

	Object       object            `json:"object"`
	Change       sampleValue       `json:"change"`
	Status       *sampleValue      `json:"status"`
	Names        map[string]string `json:"names"` // refused names, with the reasons
	Refuse       []wantRefusal     `json:"refuse"`
	RefuseUpdate []wantRefusal     `json:"refuseUpdate"`

	fill *strings.Replacer
}

// sampleValue is a value at a path.
type sampleValue struct {
	Path  string `json:"path"`
	Value any    `json:"value"`
	// IsRefused is true for a status that only the server may set.
	IsRefused bool `json:"refused"`
}

// wantRefusal is a value that is not allowed, with the error.
type wantRefusal struct {
	sampleValue
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

var allVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// readSamples reads the list of stable kinds.
func readSamples(t testing.TB) []*sample {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	fill := newFillers(t)
	var all []*sample
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var some []*sample
		if err := yaml.UnmarshalStrict(data, &some); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, s := range some {
			s.fill = fill
		}
		all = append(all, some...)
	}
	return all
}

// newFillers returns a replacer of placeholders for keys and certificates, which are generated for each run.
func newFillers(t testing.TB) *strings.Replacer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "somebody"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := certs.NewCA("anchor", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := certs.Issue(ca, certs.Admin(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	inJSON := func(text []byte) string { return strings.ReplaceAll(string(text), "\n", `\n`) }
	return strings.NewReplacer("$REQUEST",
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})),
		"$STUB", base64.StdEncoding.EncodeToString(stub), "$AUTHORITY", inJSON(ca.Cert), "$LEAF", inJSON(leaf.Cert))
}

func (s *sample) String() string { return s.Version + "/" + s.Kind }

func (s *sample) group() string {
	group, _, found := strings.Cut(s.Version, "/")
	if !found {
		return ""
	}
	return group
}

// storedGroup returns the group in errors about invalid objects. For events it is the core group, whichever group the
// request used.
func (s *sample) storedGroup() string {
	if s.Kind == "Event" {
		return ""
	}
	return s.group()
}

// qualifiedResource returns the resource as messages name it.
func (s *sample) qualifiedResource() string {
	if s.group() == "" {
		return s.Resource
	}
	return s.Resource + "." + s.group()
}

func (s *sample) hasVerb(verb string) bool {
	return len(s.Verbs) == 0 || slices.Contains(s.Verbs, verb)
}

// groupVersionPath returns the path of the kind's group version.
func (s *sample) groupVersionPath() string {
	if s.group() == "" {
		return "/api/" + s.Version
	}
	return "/apis/" + s.Version
}

// allPath returns the path of all objects of the kind.
func (s *sample) allPath() string { return s.groupVersionPath() + "/" + s.Resource }

// namespacePath returns the path of the objects in a namespace, if the kind is namespaced.
func (s *sample) namespacePath(namespace string) string {
	if !s.Namespaced {
		return s.allPath()
	}
	return s.groupVersionPath() + "/namespaces/" + namespace + "/" + s.Resource
}

var uniqueNumbers atomic.Int64

// newUnique returns a new object with a unique name.
func (s *sample) newUnique(namespace string) (o object, name string) {
	n := uniqueNumbers.Add(1)
	switch s.Name {
	case "":
		name = fmt.Sprintf("x%d", n)
	case "address":
		name = fmt.Sprintf("192.168.%d.%d", n>>8&0xff, n&0xff)
	default:
		name = fmt.Sprintf(s.Name, n)
	}
	return s.newNamed(namespace, name), name
}

func (s *sample) newNamed(namespace, name string) object {
	text := s.fill.Replace(string(encode(s.Object)))
	_, group, _ := strings.Cut(name, ".")
	text = strings.NewReplacer("$NAMESPACE", namespace, "$GROUP", group).Replace(text)
	o := object{}
	if text != "null" {
		o = cloneText(text)
	}
	o["apiVersion"], o["kind"] = s.Version, s.Kind
	o = withValue(o, "metadata.name", name)
	if s.Namespaced {
		o = withValue(o, "metadata.namespace", namespace)
	}
	return o
}

// fillPlaceholders returns a value of the sample with its placeholders replaced.
func (s *sample) fillPlaceholders(v any, namespace string) any {
	text := string(encode(object{"v": v}))
	text = strings.NewReplacer("$NAMESPACE", namespace).Replace(s.fill.Replace(text))
	return cloneText(text)["v"]
}
