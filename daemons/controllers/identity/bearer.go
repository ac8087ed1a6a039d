package identity

import (
	"io"
	"net/http"
)

// bearer sends requests with an account's token. If the API server rejects the token, bearer gets a new one and sends
// the request once more. That is safe, because an unauthenticated request has no effect.
type bearer struct {
	account   *account
	transport http.RoundTripper
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.account.token(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	answer, err := b.transport.RoundTrip(withToken(r, token, r.Body))
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		return answer, err
	}
	b.account.discardToken(token)
	body := r.Body
	if body != nil && body != http.NoBody {
		if r.GetBody == nil {
			return answer, nil
		}
		if body, err = r.GetBody(); err != nil {
			return answer, nil
		}
	}
	if token, err = b.account.token(r.Context()); err != nil {
		if body != nil {
			_ = body.Close()
		}
		return answer, nil // the caller sees the 401
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
	_ = answer.Body.Close()
	if answer, err = b.transport.RoundTrip(withToken(r, token, body)); err == nil &&
		answer.StatusCode == http.StatusUnauthorized {
		b.account.discardToken(token)
	}
	return answer, err
}

// withToken returns a copy of a request with a token.
func withToken(r *http.Request, token string, body io.ReadCloser) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	r.Body = body
	return r
}

// WrappedRoundTripper returns the underlying transport, for callers that unwrap transports.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.transport }
