package apiserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/audit"
	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/run"
)

// Options configures a Server.
type Options struct {
	Storage *Storage // required
	Env     run.Env  // required

	Access    Access
	Admission Admission
	Addresses Addresses
	Peers     Peers
	Limits    Limits

	// Bootstrap holds objects that are created if they are missing. Missing rules and subjects are added to existing
	// ones (RBAC's default objects).
	Bootstrap []runtime.Object

	// Auditor records requests; nil records nothing. The caller of the server also runs the auditor, and stops it last.
	Auditor *audit.Auditor

	// Tasks run as long as the server does. If a task returns an error, the server stops.
	Tasks []func(ctx context.Context, s *Server) error

	Profiling bool
	Now       func() time.Time // nil means time.Now
}

// Access configures authentication and authorization, and the handlers of reviews, tokens and token keys.
type Access struct {
	// Authenticators and Authorizers are tried in order. Without authorizers everything is allowed. Without
	// authenticators every request is anonymous.
	Authenticators []api.Authenticator
	Authorizers    []api.Authorizer
	// Anonymous reports whether a path needs no credentials. isDefault is true for the paths that are open by default.
	// If it is nil and there are authenticators, every path needs credentials.
	Anonymous func(path string, isDefault bool) bool
	// UntilRevoked limits a watch or a stream to the time that the user's credentials are valid; nil sets no limit. The
	// returned function is called at the end of the request.
	UntilRevoked func(ctx context.Context, r *http.Request, user api.User) (context.Context, context.CancelFunc)

	// Reviews holds the handlers of virtual kinds, by resource. Token is the handler of serviceaccounts/token.
	Reviews map[schema.GroupResource]write.Review
	Token   write.TokenReview

	// TokenKeys answers /.well-known/openid-configuration and /openid/v1/jwks; nil serves neither.
	TokenKeys http.Handler
}

// Admission configures the admission plugins.
type Admission struct {
	Mutators   []api.Mutator
	Validators []api.Validator
	// Quota is the last validator. It is checked a second time for the writes that it bounds, one write per namespace
	// at a time. It may be nil.
	Quota write.QuotaValidator
	// External selects the policies and webhooks that the cluster's objects configure; nil runs none.
	External *write.External
}

// Addresses are the server's own address, and the ranges from which Services get theirs.
type Addresses struct {
	ServiceClusterIPRange []string // CIDRs; empty allocates no addresses
	ServiceNodePortRange  string   // first-last; empty means 30000-32767

	// AdvertiseAddress and AdvertisePort are this server's endpoint of the kubernetes service. If the address is empty,
	// the service is not written.
	AdvertiseAddress string
	AdvertisePort    int
}

// Peers configures connections to kubelets and to aggregated API servers.
type Peers struct {
	// KubeletTLS configures connections to kubelets: the trusted authorities and the server's own certificate. If it is
	// nil, logs, exec and the like are refused.
	KubeletTLS *tls.Config
	// KubeletRoots returns the authorities that verify a new connection to a kubelet; nil means those of KubeletTLS.
	KubeletRoots func() *x509.CertPool

	// FrontProxy returns the client certificate for aggregated servers. It makes them trust the headers that name the
	// user; nil presents no certificate.
	FrontProxy func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

	// ClusterCA returns the PEM certificates of the authorities that sign the cluster's own servers. They are trusted
	// for aggregated API servers whose APIService has no caBundle, in addition to the system's authorities. nil adds
	// none.
	ClusterCA func() []byte
}

// Limits are the limits on requests and on the age of events.
type Limits struct {
	RequestTimeout time.Duration // zero means a minute
	EventTTL       time.Duration // zero means an hour

	// Flow shares the server's capacity among requests. If it is nil, MaxInFlight limits the number of requests.
	Flow        *flow.Controller
	MaxInFlight int // limit of concurrent requests, not counting watches and streams; zero means 800
}

// withDefaults returns the options with the defaults of unset fields.
func (o Options) withDefaults() Options {
	limits := &o.Limits
	limits.RequestTimeout = cmp.Or(limits.RequestTimeout, defaultRequestTimeout)
	limits.EventTTL = cmp.Or(limits.EventTTL, time.Hour)
	limits.MaxInFlight = cmp.Or(limits.MaxInFlight, 800)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}
