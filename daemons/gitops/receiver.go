package gitops

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config/gitsource"
)

// Bounds of receivers.
const (
	maxHookBody   = 1 << 20         // bytes of a request's body
	hookInterval  = 5 * time.Second // between two reconciliations of a source that hooks request
	hookPrefix    = "/hooks/"       // of the path of a source's receiver, before NAMESPACE/NAME
	maxTokenBytes = 4096            // bytes of a receiver's token
)

// tokenKey is the key of the token in the Secrets of receivers and notifications.
const tokenKey = "token"

// hook is what a receiver must know of a source to serve its requests.
type hook struct {
	kind   string
	events []string
	token  []byte
}

// isSigned reports whether a request has the hook's token or a signature with it. The HMAC is computed in any case, so
// that the duration does not depend on the kind.
func (h hook) isSigned(header http.Header, body []byte) bool {
	mac := hmac.New(sha256.New, h.token)
	_, _ = mac.Write(body) // never fails
	sum := mac.Sum(nil)
	if h.kind == gitsource.ReceiverGitLab { // digests have the same length
		given, want := sha256.Sum256([]byte(header.Get("X-Gitlab-Token"))), sha256.Sum256(h.token)
		return subtle.ConstantTimeCompare(given[:], want[:]) == 1
	}
	text := header.Get("X-Gitea-Signature")
	switch h.kind {
	case gitsource.ReceiverGitHub:
		text = withoutAlgorithm(header.Get("X-Hub-Signature-256"))
	case gitsource.ReceiverGeneric:
		text = withoutAlgorithm(header.Get("X-Signature"))
	}
	given, err := hex.DecodeString(text)
	return err == nil && hmac.Equal(given, sum)
}

// withoutAlgorithm returns the digits of a signature such as sha256=0f…, or "" if it has another algorithm.
func withoutAlgorithm(signature string) string {
	digits, ok := strings.CutPrefix(signature, "sha256=")
	if !ok {
		return ""
	}
	return digits
}

// eventHeaders are the headers that name the event of a request.
var eventHeaders = map[string]string{gitsource.ReceiverGitHub: "X-GitHub-Event",
	gitsource.ReceiverGitLab: "X-Gitlab-Event", gitsource.ReceiverGitea: "X-Gitea-Event"}

// wantsEvent reports whether the hook reacts to the event of a request. Generic requests name none.
func (h hook) wantsEvent(header http.Header) bool {
	name, ok := eventHeaders[h.kind]
	return !ok || slices.Contains(h.events, header.Get(name))
}

// push is what a receiver reads of a request's body. The forms of all servers have the same names for it.
type push struct {
	Ref        string `json:"ref"`
	Repository struct {
		DefaultBranch string `json:"default_branch"`
	} `json:"repository"`
	Project struct {
		DefaultBranch string `json:"default_branch"`
	} `json:"project"`
}

// parsePush decodes the body of a request. A body that is not an object of JSON names no reference.
func parsePush(header http.Header, body []byte) (p push) {
	if kind, _, err := mime.ParseMediaType(header.Get("Content-Type")); err == nil &&
		kind == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return push{}
		}
		body = []byte(form.Get("payload"))
	}
	if json.Unmarshal(body, &p) != nil {
		return push{}
	}
	return p
}

// concerns reports whether a push may change what a source selects. A push without a reference always may.
func (p push) concerns(spec *gitsource.Spec) bool {
	branch, isBranch := strings.CutPrefix(p.Ref, "refs/heads/")
	tag, isTag := strings.CutPrefix(p.Ref, "refs/tags/")
	following := p.Repository.DefaultBranch
	if following == "" {
		following = p.Project.DefaultBranch
	}
	switch {
	case p.Ref == "" || spec.IsOCI() || spec.IsHelmRepository():
		return true
	case spec.Commit != "":
		return false
	case spec.Tag != "":
		return isTag && tag == spec.Tag
	case spec.Semver != "":
		_, isVersion := gitsource.ParseSemanticVersion(tag)
		return isTag && isVersion
	case spec.Branch != "":
		return isBranch && branch == spec.Branch
	}
	return isBranch && (following == "" || branch == following)
}

// Receiver serves the webhooks of sources. A request of an unknown source has the same answer, and takes the same work,
// as one with a wrong signature.
type Receiver struct {
	controller *Controller
	seats      seats
	unknown    hook // is used for sources that have no receiver
}

// NewReceiver returns the receiver of a controller's sources.
func NewReceiver(c *Controller) (*Receiver, error) {
	token := make([]byte, 32)
	if _, err := rand.Read(token); err != nil {
		return nil, err
	}
	return &Receiver{controller: c, unknown: hook{kind: gitsource.ReceiverGitHub, token: token}}, nil
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	// Servers that are not net/http's, as in tests, have no deadlines.
	deadline := &readDeadline{set: func(t time.Time) { _ = http.NewResponseController(w).SetReadDeadline(t) }}
	one := r.seats.take(clientOf(request.RemoteAddr), r.controller.Clock.Now(), deadline.cut)
	if one == nil {
		http.Error(w, "too many requests", http.StatusServiceUnavailable)
		return
	}
	defer r.seats.leave(one)
	path, ok := strings.CutPrefix(request.URL.Path, hookPrefix)
	namespace, name, isPath := strings.Cut(path, "/")
	paced := &pacedBody{Reader: http.MaxBytesReader(w, request.Body, maxHookBody), began: time.Now(),
		until: deadline.extend}
	body, err := io.ReadAll(paced)
	r.seats.arrived(one)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, fmt.Sprintf("the body has more than %d bytes", maxHookBody), http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	key := Key{Namespace: namespace, Name: name}
	h, found := r.controller.hookOf(key)
	if !found {
		h = r.unknown
	}
	if signed := h.isSigned(request.Header, body); !signed || !found || !ok || !isPath ||
		request.Method != http.MethodPost {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	s := r.controller.find(key)
	if s == nil || !h.wantsEvent(request.Header) || !parsePush(request.Header, body).concerns(&s.Spec) {
		fmt.Fprintln(w, "the event does not concern the source")
		return
	}
	r.controller.request(key)
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprintln(w, "a reconciliation is requested")
}

// hookOf returns the hook of a source. It exists once the controller has read the source's token.
func (c *Controller) hookOf(key Key) (hook, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil || e.hook == nil {
		return hook{}, false
	}
	return *e.hook, true
}

// request queues a source for a reconciliation. Requests that follow each other closely have one together.
func (c *Controller) request(key Key) {
	now := c.Clock.Now()
	c.mu.Lock()
	e := c.entryOf(key)
	e.requested++
	wait := e.requestedAt.Sub(now)
	if wait <= 0 {
		if next := e.requestedAt.Add(hookInterval); next.After(now) {
			e.requestedAt = next
		} else {
			e.requestedAt = now
		}
		wait = e.requestedAt.Sub(now)
	}
	c.mu.Unlock()
	c.Log.Info("a webhook requests a reconciliation", "source", key)
	c.queue.AddAfter(key, wait)
}

// receive reads the token of a source's receiver, and reports in a condition whether requests are accepted. A token
// that cannot be read does not keep the source from being reconciled.
func (c *Controller) receive(ctx context.Context, s *Source, st *gitsource.Status) {
	var h *hook
	set := func(status metav1.ConditionStatus, reason, message string) {
		setCondition(st, s.Generation, c.Clock.Now(), gitsource.ConditionReceiving, status, reason, message)
	}
	if r := s.Spec.Receiver; r != nil {
		token, err := c.readToken(ctx, s, r.Secret)
		if err == nil {
			h = &hook{kind: r.Type, events: r.EventsOrDefault(), token: token}
			set(metav1.ConditionTrue, "Listening", "webhooks are received at "+hookPrefix+s.owner())
		} else {
			set(metav1.ConditionFalse, reasonSecret, fmt.Sprintf("read secret %s/%s: %v", s.Namespace, r.Secret, err))
		}
	} else {
		removeCondition(st, gitsource.ConditionReceiving)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entryOf(s.Key()).hook = h
}

// readToken returns the token in a Secret of the source's namespace, without spaces around it.
func (c *Controller) readToken(ctx context.Context, s *Source, secret string) ([]byte, error) {
	a, err := c.Cluster.As(s.Namespace, s.Account())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	data, err := readSecret(ctx, a, s.Namespace, secret)
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(string(data[tokenKey]))
	switch {
	case token == "":
		return nil, fmt.Errorf("it has no key %q", tokenKey)
	case len(token) > maxTokenBytes:
		return nil, fmt.Errorf("its key %q has more than %d bytes", tokenKey, maxTokenBytes)
	}
	return []byte(token), nil
}

// tokenTimeout limits how long the API may take to return a Secret with a token.
const tokenTimeout = 30 * time.Second
