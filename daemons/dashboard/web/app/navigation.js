// The pages of the navigation.

/** All pages: address, title, and the letter after g that opens it. */
export const pages = [
  ['/', 'Overview', 'o'],
  ['/p/nodes', 'Nodes', 'n'],
  ['/p/workloads', 'Workloads', 'w'],
  ['/p/pods', 'Pods', 'p'],
  ['/p/network', 'Network', 's'],
  ['/p/storage', 'Storage', 'v'],
  ['/p/config', 'Configuration', 'c'],
  ['/p/events', 'Events', 'e'],
  ['/p/gitops', 'GitOps', 'g'],
  ['/p/certificates', 'Certificates', 'x'],
  ['/p/etcd', 'etcd', 'd'],
  ['/p/kinds', 'All kinds', 'k'],
];
