package authn

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/header"
)

// errOtherToken reports that a token is not of the kind that an authenticator verifies.
var errOtherToken = errors.New("the token is none of these")

// tokenVerifier authenticates users by tokens. It returns the user, and those of the wanted audiences that the token is
// valid for; if none are wanted, this server's. errOtherToken passes the token to the next tokenVerifier.
type tokenVerifier interface {
	verify(ctx context.Context, token string, wanted []string) (api.User, []string, error)
}

// bearer authenticates users by the token in the Authorization header. Browsers cannot set headers for a WebSocket, so
// there it also accepts a token among the protocols.
type bearer struct{ verifiers []tokenVerifier }

func (b *bearer) Authenticate(r *http.Request) (api.User, bool, error) {
	token, websocket := bearerToken(r)
	if token == "" {
		return api.User{}, false, nil
	}
	user, _, err := b.verify(r.Context(), token, nil)
	if err != nil {
		return api.User{}, false, err
	}
	// A proxied request must not carry the user's token further.
	if !websocket {
		r.Header.Del("Authorization")
	}
	return user, true, nil
}

// TryAuthenticate handles only requests without a token. A token may need a call to a webhook, and authenticating
// removes it from the request.
func (b *bearer) TryAuthenticate(r *http.Request) (api.User, bool, bool) {
	return api.User{}, false, len(r.Header["Authorization"]) > 0 || len(r.Header["Upgrade"]) > 0
}

// verify tries the authenticators in order.
func (b *bearer) verify(ctx context.Context, token string, wanted []string) (api.User, []string, error) {
	var errs []error
	for _, way := range b.verifiers {
		user, audiences, err := way.verify(ctx, token, wanted)
		if err == nil {
			return user, audiences, nil
		}
		if !errors.Is(err, errOtherToken) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return api.User{}, nil, errInvalidToken
	}
	return api.User{}, nil, utilerrors.NewAggregate(errs)
}

// socketToken is the prefix of the protocol in which a browser sends a token.
const socketToken = "base64url.bearer.authorization.k8s.io."

func bearerToken(r *http.Request) (token string, websocket bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); strings.EqualFold(scheme, "bearer") && token != "" {
		return token, false
	}
	if !header.Has(r.Header, "Upgrade", "websocket") {
		return "", false
	}
	var rest []string
	for p := range header.Elements(r.Header, "Sec-WebSocket-Protocol") {
		encoded, ok := strings.CutPrefix(p, socketToken)
		if !ok {
			rest = append(rest, p)
		} else if text, err := base64.RawURLEncoding.DecodeString(encoded); err == nil && utf8.Valid(text) &&
			token == "" {
			token = string(text)
		}
	}
	if token != "" { // the other end must not select the token as the protocol
		r.Header.Set("Sec-WebSocket-Protocol", strings.Join(rest, ", "))
	}
	return token, true
}

// audiencesOf returns those of the wanted audiences that a token has; if none are wanted, those of this server. It
// returns an error if there are none. An authenticator without audiences passes this server's own as has.
func audiencesOf(own, wanted, issued []string) (list []string, err error) {
	if len(wanted) == 0 {
		wanted = own
	}
	for _, a := range wanted {
		if slices.Contains(issued, a) {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: token audiences %q is invalid for the target audiences "+
			"%q", errInvalidToken, issued, wanted)
	}
	return list, nil
}
