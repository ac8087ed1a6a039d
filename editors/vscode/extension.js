// Starts clusterctl lsp and lets VS Code speak with it.
const { workspace } = require('vscode')
const { LanguageClient, TransportKind } = require('vscode-languageclient/node')

let client

exports.activate = () => {
  const command = workspace.getConfiguration('clusterctl').get('path')
  const server = { command, args: ['lsp'], transport: TransportKind.stdio }
  client = new LanguageClient('clusterctl', 'clusterctl', server, { documentSelector: [{ scheme: 'file', language: 'clusterctl' }] })
  return client.start()
}

exports.deactivate = () => client && client.stop()
