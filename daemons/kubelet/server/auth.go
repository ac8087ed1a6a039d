package server

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/run"
)

// authFilter authenticates and authorizes requests to the kubelet's server. It authenticates by a client certificate of
// the cluster's CA or by a token. It authorizes against the subresource of the node that belongs to the path.
type authFilter struct {
	s   *Server
	cas *run.Authorities
	// revoked certificates do not authenticate.
	revoked  *run.Revoked
	mu       sync.Mutex
	verdicts map[requestHash]verdict
}

// requestHash identifies a request to the API server by its hash. The size is fixed, because unauthenticated clients
// can send tokens as long as a header.
type requestHash [sha256.Size]byte

func hashOf(parts ...any) requestHash {
	return sha256.Sum256(fmt.Appendf(nil, strings.Repeat("%q ", len(parts)), parts...))
}

type verdict struct {
	user    authenticationv1.UserInfo
	allowed bool
	expires time.Time
}

// These limits apply to the cache of API server responses: how long allowed requests, denied requests and tokens are
// cached, and how many entries the cache holds.
const (
	allowedTTL  = 5 * time.Minute
	deniedTTL   = 30 * time.Second
	tokenTTL    = 2 * time.Minute
	maxVerdicts = 4096
)

func (s *Server) newAuthFilter() (*authFilter, error) {
	g := &authFilter{s: s, verdicts: map[requestHash]verdict{}}
	if path := s.File.Authentication.X509.ClientCAFile; path != "" {
		var err error
		if g.cas, err = run.NewAuthorities(path); err != nil {
			return nil, fmt.Errorf("read the CA of clients: %w", err)
		}
		if g.revoked, err = run.NewRevoked(s.RevokedFile, path, s.Log); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *authFilter) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := g.authenticate(r)
		if err != nil {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		ok, err := g.authorize(r, user)
		if err != nil {
			g.s.Log.Warn("ask whether a request is allowed", "user", user.Username, "path", r.URL.Path, "error", err)
			http.Error(w, "authorization could not be decided", http.StatusInternalServerError)
			return
		}
		if !ok {
			verb, resource := requestAttributes(r)
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Username,
				verb, resource), http.StatusForbidden)
			return
		}
		run.ConnOf(r.Context()).Identify()
		ctx, stop := g.withRevocation(r)
		defer stop()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// withRevocation returns a context for a request that ends when the request's client certificate is revoked. Streams,
// for example, end then.
func (g *authFilter) withRevocation(r *http.Request) (context.Context, context.CancelFunc) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || g.revoked == nil {
		return r.Context(), func() {}
	}
	return g.revoked.ContextFor(r.Context(), r.TLS.PeerCertificates[0])
}

var errNoCredentials = errors.New("no valid credentials")

func (g *authFilter) authenticate(r *http.Request) (authenticationv1.UserInfo, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && g.cas != nil {
		between := x509.NewCertPool()
		for _, c := range r.TLS.PeerCertificates[1:] {
			between.AddCert(c)
		}
		leaf := r.TLS.PeerCertificates[0]
		_, err := leaf.Verify(
			x509.VerifyOptions{
				Roots:         g.cas.Pool(),
				Intermediates: between,
				KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			},
		)
		if err == nil {
			if err := g.revoked.Check(leaf); err != nil {
				return authenticationv1.UserInfo{}, err
			}
			groups := append(append([]string{}, leaf.Subject.Organization...), "system:authenticated")
			return authenticationv1.UserInfo{Username: leaf.Subject.CommonName, Groups: groups}, nil
		}
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok &&
		g.s.File.Authentication.Webhook.Enabled {
		return g.reviewToken(r.Context(), strings.TrimSpace(token))
	}
	if g.s.File.Authentication.Anonymous.Enabled {
		return authenticationv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}}, nil
	}
	return authenticationv1.UserInfo{}, errNoCredentials
}

func (g *authFilter) reviewToken(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	id := hashOf("token", token)
	if v, ok := g.cachedVerdict(id); ok {
		if !v.allowed {
			return v.user, errNoCredentials
		}
		return v.user, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	review, err := g.s.Client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("review a token: %w", err)
	}
	g.cacheVerdict(id, verdict{review.Status.User, review.Status.Authenticated, time.Now().Add(tokenTTL)})
	if !review.Status.Authenticated {
		return authenticationv1.UserInfo{}, errNoCredentials
	}
	return review.Status.User, nil
}

// requestAttributes returns the verb and the subresource of nodes that a request must be authorized for.
func requestAttributes(r *http.Request) (verb, subresource string) {
	switch r.Method {
	case http.MethodPost:
		verb = "create"
	case http.MethodPut:
		verb = "update"
	case http.MethodPatch:
		verb = "patch"
	case http.MethodDelete:
		verb = "delete"
	default:
		verb = "get"
	}
	path := r.URL.Path
	isBelow := func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
	switch {
	case isBelow("/exec"), isBelow("/attach"), isBelow("/portForward"), isBelow("/run"):
		// A WebSocket starts with a GET request. A client that may only get must not run commands through it.
		return "create", "proxy"
	case isBelow("/stats"):
		return verb, "stats"
	case isBelow("/metrics"):
		return verb, "metrics"
	case isBelow("/logs"):
		return verb, "log"
	case isBelow("/healthz"):
		return verb, "healthz"
	case isBelow("/pods"), isBelow("/runningpods"):
		return verb, "pods"
	case isBelow("/configz"):
		return verb, "configz"
	case isBelow("/statusz"):
		return verb, "statusz"
	case isBelow("/flagz"):
		return verb, "flagz"
	}
	return verb, "proxy"
}

func (g *authFilter) authorize(r *http.Request, user authenticationv1.UserInfo) (bool, error) {
	if g.s.File.Authorization.Mode == "AlwaysAllow" {
		return true, nil
	}
	verb, subresource := requestAttributes(r)
	extra, values := map[string]authorizationv1.ExtraValue{}, map[string][]string{}
	for k, v := range user.Extra {
		extra[k], values[k] = authorizationv1.ExtraValue(v), v
	}
	id := hashOf("may", user.Username, user.UID, verb, subresource, user.Groups, values)
	if v, ok := g.cachedVerdict(id); ok {
		return v.allowed, nil
	}
	ask := func(sub string) (bool, error) {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		review, err := g.s.Client.AuthorizationV1().
			SubjectAccessReviews().
			Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{
					User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb:        verb,
						Version:     "v1",
						Resource:    "nodes",
						Subresource: sub,
						Name:        g.s.Node,
					},
				},
			}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("review access: %w", err)
		}
		return review.Status.Allowed, nil
	}
	ok, err := ask(subresource)
	if err == nil && !ok && slices.Contains([]string{"healthz", "pods", "configz", "statusz", "flagz"}, subresource) {
		ok, err = ask("proxy") // older roles grant the coarser permission
	}
	if err != nil {
		return false, err
	}
	keep := deniedTTL
	if ok {
		keep = allowedTTL
	}
	g.cacheVerdict(id, verdict{allowed: ok, expires: time.Now().Add(keep)})
	return ok, nil
}

func (g *authFilter) cachedVerdict(id requestHash) (verdict, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.verdicts[id]
	return v, ok && time.Now().Before(v.expires)
}

func (g *authFilter) cacheVerdict(id requestHash, v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.verdicts) >= maxVerdicts {
		clear(g.verdicts)
	}
	g.verdicts[id] = v
}
