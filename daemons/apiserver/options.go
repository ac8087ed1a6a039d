package apiserver

import (
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
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
)

// Review answers the creation of a kind that is not stored (a review), or of a
// subresource that has a type of its own (a token). obj is what the client sent,
// decoded and defaulted; what is returned is sent back.
type Review func(ctx context.Context, user api.User, obj runtime.Object) (runtime.Object, error)

// TokenReview answers serviceaccounts/token for the service account named.
type TokenReview func(ctx context.Context, user api.User, namespace, name string,
	obj runtime.Object) (runtime.Object, error)

// Options is what a server is made of.
type Options struct {
	Kinds []*kinds.Kind // what is served
	Store store.Store   // required
	Env   run.Env       // required

	Prefix string // of all keys; empty means /registry

	// Who asks and who may. Tried in order. Without authorizers everything is
	// allowed, without authenticators everybody is anonymous.
	Authenticators []api.Authenticator
	Authorizers    []api.Authorizer
	// Anonymous says which paths need no credentials; usual says that everybody may ask for it where nothing else is
	// said. With nil and authenticators, none.
	Anonymous func(path string, usual bool) bool
	// While bounds a watch or a stream to the time that the user's credentials are good for; nil does not. What it
	// returns besides is called when the request is over.
	While func(ctx context.Context, r *http.Request, user api.User) (context.Context, context.CancelFunc)

	Mutators   []api.Mutator
	Validators []api.Validator
	// Quota is asked again about what it bounds, one write of a namespace at a time.
	Quota Bounded
	// Outside are those of them that ask others, webhooks and policies: they see all that
	// is sent, also to subresources, and connections.
	Outside struct {
		Mutators   []api.Mutator
		Validators []api.Validator
	}

	// Reviews are the handlers of virtual kinds, by resource; Token that of
	// serviceaccounts/token.
	Reviews map[schema.GroupResource]Review
	Token   TokenReview

	// TokenKeys answers /.well-known/openid-configuration and /openid/v1/jwks; nil
	// answers neither.
	TokenKeys http.Handler

	// Bootstrap are objects that are created when they are missing, and whose rules and
	// subjects are completed when they lack some (RBAC's default objects).
	Bootstrap []runtime.Object

	ServiceClusterIPRange []string // CIDRs; empty allocates no addresses
	ServiceNodePortRange  string   // first-last; empty means 30000-32767

	// AdvertiseAddress and AdvertisePort are where the service kubernetes leads; an
	// empty address leaves the service alone.
	AdvertiseAddress string
	AdvertisePort    int

	// KubeletTLS is how kubelets are connected to: whose certificates are good, and the
	// server's own. Nil refuses logs, exec and the like.
	KubeletTLS *tls.Config
	// KubeletRoots are the authorities by which a new connection to a kubelet is judged; nil means those of KubeletTLS.
	KubeletRoots func() *x509.CertPool

	// Auditor keeps what is asked; nil keeps nothing. Who runs the server runs it, too, and
	// ends it last.
	Auditor *audit.Auditor

	// Flow shares the server's capacity out. With nil, MaxInFlight bounds it.
	Flow *flow.Controller

	// Tasks run for as long as the server does. One that returns an error ends it.
	Tasks []func(ctx context.Context, s *Server) error

	// FrontProxy is what the server shows of itself to those that it passes requests on to,
	// so that they believe as whom these are made; nil shows nothing.
	FrontProxy func(*tls.CertificateRequestInfo) (*tls.Certificate, error)

	// ClusterCA returns the PEM certificates of the authorities that sign the cluster's own servers. They are trusted
	// for aggregated API servers whose APIService has no caBundle, in addition to the system's authorities. nil adds
	// none.
	ClusterCA func() []byte

	RequestTimeout time.Duration // zero means a minute
	EventTTL       time.Duration // zero means an hour
	MaxInFlight    int           // requests at once besides watches and streams; zero means 800
	Profiling      bool
	Now            func() time.Time // nil means time.Now
}
