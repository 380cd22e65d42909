//go:build agents

package agentstest

// mcpServer is a stdio MCP server with one tool, whoami, that tells the uid it runs with.
const mcpServer = `
const lines = require('node:readline').createInterface({input: process.stdin});
const send = m => process.stdout.write(JSON.stringify({jsonrpc: '2.0', ...m}) + '\n');
const tool = {name: 'whoami', description: 'tells the uid', inputSchema: {type: 'object', properties: {}}};
lines.on('line', line => {
  const {id, method, params} = JSON.parse(line);
  switch (method) {
  case 'initialize':
    return send({id, result: {protocolVersion: params.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: 'who', version: '1'}}});
  case 'tools/list':
    return send({id, result: {tools: [tool]}});
  case 'tools/call':
    return send({id, result: {content: [{type: 'text', text: 'uid ' + require('fs').readFileSync('/proc/self/uid_map', 'utf8').trim().split(/\s+/)[1]}]}});
  default:
    if (id !== undefined) send({id, error: {code: -32601, message: 'no such method'}});
  }
});
`
