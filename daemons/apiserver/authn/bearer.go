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

// errForeign says that a token is none of a way's own.
var errForeign = errors.New("the token is none of these")

// tokenWay knows users by tokens. For which of the wanted audiences the token is comes with
// the user; none wanted means this server's. errForeign leaves the token to the next way.
type tokenWay interface {
	verify(ctx context.Context, token string, wanted []string) (api.User, []string, error)
}

// bearer knows users by the token in the Authorization header, or in a WebSocket's protocols
// where a browser has no headers.
type bearer struct{ ways []tokenWay }

func (b *bearer) Authenticate(r *http.Request) (api.User, bool, error) {
	token, websocket := bearerToken(r)
	if token == "" {
		return api.User{}, false, nil
	}
	user, _, err := b.verify(r.Context(), token, nil)
	if err != nil {
		return api.User{}, false, err
	}
	// A proxied request must not carry the caller's token further.
	if !websocket {
		r.Header.Del("Authorization")
	}
	return user, true, nil
}

// AuthenticatePromptly knows only that there is no token: it may be a webhook that knows whose one is, and a token is
// taken away from the request.
func (b *bearer) AuthenticatePromptly(r *http.Request) (api.User, bool, bool) {
	return api.User{}, false, len(r.Header["Authorization"]) > 0 || len(r.Header["Upgrade"]) > 0
}

// verify asks each way in turn.
func (b *bearer) verify(ctx context.Context, token string, wanted []string) (api.User, []string, error) {
	var errs []error
	for _, way := range b.ways {
		user, audiences, err := way.verify(ctx, token, wanted)
		if err == nil {
			return user, audiences, nil
		}
		if !errors.Is(err, errForeign) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return api.User{}, nil, errToken
	}
	return api.User{}, nil, utilerrors.NewAggregate(errs)
}

// socketToken is the protocol by which a browser sends a token.
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
	if token != "" { // the other end must not choose it as the protocol to speak
		r.Header.Set("Sec-WebSocket-Protocol", strings.Join(rest, ", "))
	}
	return token, true
}

// audiencesOf are those of the wanted audiences that a token has, an error when it has none.
// A way that knows nothing of audiences gives all of its tokens this server's.
func audiencesOf(own, wanted, has []string) (list []string, err error) {
	if len(wanted) == 0 {
		wanted = own
	}
	for _, a := range wanted {
		if slices.Contains(has, a) {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: token audiences %q is invalid for the target audiences %q", errToken, has, wanted)
	}
	return list, nil
}
