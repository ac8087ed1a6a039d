package workload

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/kube/scheme"
	"clusterctl/provision/state"
)

// settled is which objects were as declared when they were last looked at. One that is declared as it was, and has not
// been written since, needs no dry run: nothing would come of it. Within one run that is all; a file carries it to the
// next one, where the API may have changed meanwhile. So nothing is carried on where webhooks or policies have a say,
// nor from one version of the API server to another, nor of kinds that are defined in the cluster. Secrets are left
// out, of whose content not even a digest is kept.
type settled struct {
	path    string                         // of the file; empty: nothing is carried on
	version func() (git string, err error) // of the API server

	mu    sync.Mutex
	at    map[state.Object]string // resource versions, of this run
	api   string                  // the API as it was when the run began; empty: nothing is carried on
	was   map[string]string       // digests, by the names of objects
	now   map[string]string
	wrote bool // something was added to now
}

// Remember names the file that carries from one run to the next what needs no second look. Losing it costs time and
// nothing else.
func (l *Live) Remember(path string) { l.settled.path = path }

// open reads the file, and what of the API decides whether it holds.
func (s *settled) open(ctx context.Context, l *Live) {
	if s.path == "" || s.now != nil {
		return
	}
	s.was, s.now = map[string]string{}, map[string]string{}
	version, err := s.version()
	if err != nil || l.interfered(ctx) {
		return
	}
	s.api = version
	if text, err := os.ReadFile(s.path); err == nil && json.Unmarshal(text, &s.was) != nil {
		s.was = map[string]string{}
	}
}

// interfering are kinds by which others change or refuse what is written.
var interfering = []string{
	"MutatingWebhookConfiguration",
	"ValidatingWebhookConfiguration",
	"MutatingAdmissionPolicyBinding",
	"ValidatingAdmissionPolicyBinding",
}

// interfered reports whether others may have a say in what comes of a write, or whether that is not known.
func (l *Live) interfered(ctx context.Context) bool {
	g, ctx := errgroup.WithContext(ctx)
	for _, kind := range interfering {
		g.Go(func() error {
			mappings, err := l.mapper.RESTMappings(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: kind})
			if meta.IsNoMatchError(err) {
				return nil
			}
			if err != nil {
				return err
			}
			list, err := l.dynamic.Resource(mappings[0].Resource).
				List(ctx, metav1.ListOptions{Limit: 1})
				// all versions show the same objects
			if err == nil && len(list.Items) > 0 {
				err = errInterfered
			}
			return err
		})
	}
	return g.Wait() != nil
}

var errInterfered = errors.New("others have a say in what is written")

func versionOf(live *unstructured.Unstructured) string {
	return string(live.GetUID()) + " " + live.GetResourceVersion()
}

// note is that an object is as declared.
func (s *settled) note(d Desired, live *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[state.Object]string{}
	}
	s.at[d.reference()] = versionOf(live)
	s.carry(d, live)
}

// still reports whether an object is as it was when it was found to be as declared.
func (s *settled) still(d Desired, live *unstructured.Unstructured) bool {
	if live.GetResourceVersion() == "" || live.GetUID() == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.at[d.reference()]; known {
		return at == versionOf(live)
	}
	if s.api == "" {
		return false
	}
	sum := s.digest(d, live)
	if sum == "" || s.was[nameOf(d)] != sum {
		return false
	}
	s.now[nameOf(d)] = sum
	return true
}

func (s *settled) carry(d Desired, live *unstructured.Unstructured) {
	if s.api == "" || live.GetResourceVersion() == "" || live.GetUID() == "" {
		return
	}
	if sum := s.digest(d, live); sum != "" {
		s.now[nameOf(d)], s.wrote = sum, true
	}
}

func nameOf(d Desired) string {
	return strings.Join(
		[]string{d.Object.GetAPIVersion(), d.Object.GetKind(), d.Object.GetNamespace(), d.Object.GetName()},
		" ",
	)
}

// digest is of what is declared, of what there is, and of the API; empty for what is not carried on.
func (s *settled) digest(d Desired, live *unstructured.Unstructured) string {
	if !scheme.Scheme().Recognizes(d.Object.GroupVersionKind()) || d.Object.GetKind() == "Secret" {
		return ""
	}
	text, err := json.Marshal([]any{s.api, versionOf(live), d.Object.Object})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return base64.RawStdEncoding.EncodeToString(sum[:18])
}

// save writes the file, when there is something new. What was not looked at this time is not forgotten: a run may be
// about a part.
func (s *settled) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.api == "" || !s.wrote {
		return
	}
	for name, sum := range s.was {
		if _, seen := s.now[name]; !seen && len(s.now) < mostSettled {
			s.now[name] = sum
		}
	}
	text, err := json.Marshal(s.now)
	if err != nil {
		return
	}
	// What cannot be written is looked at again next time.
	f, err := os.CreateTemp(filepath.Dir(s.path), ".settled-*")
	if err != nil {
		return
	}
	_, err = f.Write(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), s.path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return
	}
	s.wrote = false
}

// mostSettled bounds the file, in which objects stay that are gone.
const mostSettled = 100_000
