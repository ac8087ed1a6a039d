// The sign-in page: shows why the last attempt failed.

const reasons = {
  invalid: 'The token or the link is not valid, or no longer.',
  unavailable: 'The API server does not answer. Try again later.',
  busy: 'Too many others sign in. Try again in a moment.',
  expired: 'The session has ended. Sign in again.',
};

const reason = new URLSearchParams(location.search).get('error');
if (reason) {
  const place = document.getElementById('problem');
  place.textContent = reasons[reason] ?? 'Signing in failed.';
  place.hidden = false;
}
